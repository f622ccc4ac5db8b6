//! How rails share the work, as users say it.

use marline_proto::RailPolicy;
use marline_wire::RailKind;

/// A group of kinds that users know by one name.
pub struct KindGroup {
    name: &'static str,
    kinds: &'static [RailKind],
}

/// The groups there are.
const GROUPS: &[KindGroup] = &[
    KindGroup {
        name: "udp",
        kinds: &[RailKind::Udp4, RailKind::Udp6],
    },
    KindGroup {
        name: "tcp",
        kinds: &[RailKind::Tcp4, RailKind::Tcp6],
    },
    KindGroup {
        name: "shm",
        kinds: &[RailKind::Shm],
    },
    KindGroup {
        name: "verbs",
        kinds: &[RailKind::Rc, RailKind::Uc, RailKind::Ud],
    },
];

/// How rails share the work for a peer. A rail that reaches only some peers is used for those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailsPolicy {
    /// Large messages are spread over all rails, small ones take the best.
    Stripe,
    /// Everything on the best rail; the others take over when it fails.
    ActiveStandby,
    /// Everything on rails of this group (by its place) where one works; the others stand by.
    Prefer(usize),
}

impl RailsPolicy {
    /// The policy of this name.
    pub fn parse(text: &str) -> Option<RailsPolicy> {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "stripe" => Some(RailsPolicy::Stripe),
            "active-standby" => Some(RailsPolicy::ActiveStandby),
            _ => {
                let kind = text.strip_prefix("prefer=")?;
                let group = GROUPS.iter().position(|group| group.name == kind)?;
                Some(RailsPolicy::Prefer(group))
            }
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            RailsPolicy::Stripe => "stripe".to_owned(),
            RailsPolicy::ActiveStandby => "active-standby".to_owned(),
            RailsPolicy::Prefer(at) => format!("prefer={}", GROUPS[at].name),
        }
    }

    /// Every name, for people.
    pub fn names() -> String {
        let groups: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        let groups = groups.join(", ");
        format!("stripe, active-standby, or prefer=KIND with a KIND of {groups}")
    }

    /// As a node knows it.
    pub fn of_node(self) -> RailPolicy {
        match self {
            RailsPolicy::Stripe => RailPolicy::Stripe,
            RailsPolicy::ActiveStandby => RailPolicy::Standby,
            RailsPolicy::Prefer(at) => RailPolicy::Prefer(GROUPS[at].kinds),
        }
    }

    /// True if rails of this kind are to carry everything.
    pub fn prefers(self, kind: RailKind) -> bool {
        matches!(self, RailsPolicy::Prefer(at) if GROUPS[at].kinds.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        let preferred = (0..GROUPS.len()).map(RailsPolicy::Prefer);
        let both = [RailsPolicy::Stripe, RailsPolicy::ActiveStandby];
        for policy in both.into_iter().chain(preferred) {
            assert_eq!(RailsPolicy::parse(&policy.name()), Some(policy));
        }
        let tcp = RailsPolicy::parse("Prefer=TCP").unwrap();
        assert!(tcp.prefers(RailKind::Tcp6) && !tcp.prefers(RailKind::Udp4));
        for wrong in ["", "prefer", "prefer=", "prefer=token-ring", "standby"] {
            assert_eq!(RailsPolicy::parse(wrong), None, "{wrong}");
        }
    }
}
