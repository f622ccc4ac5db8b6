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

/// Kinds of rails, a bit for each of [`KINDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailKinds(u8);

/// Their names, as rails are named by them.
const KINDS: [&str; 6] = ["udp", "tcp", "shm", "rc", "uc", "ud"];

impl RailKinds {
    /// `rc` alone.
    pub const RELIABLE_CONNECTIONS: RailKinds = RailKinds(1 << 3);

    /// Returns whether some of these kinds are among them.
    pub(crate) fn has(self, some: RailKinds) -> bool {
        self.0 & some.0 != 0
    }

    /// The kinds of a list of names.
    pub fn parse(text: &str) -> Option<RailKinds> {
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let bit = |name: &str| KINDS.iter().position(|k| k.eq_ignore_ascii_case(name));
        let mut bits = names.map(|name| Some(1 << bit(name)?));
        bits.try_fold(0, |all, bit: Option<u8>| Some(all | bit?))
            .map(RailKinds)
    }

    /// Their names.
    pub fn names(self) -> String {
        let has = |(at, _): &(usize, &&str)| self.0 >> at & 1 == 1;
        let names = KINDS.iter().enumerate().filter(has);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    }

    /// Every name, for people.
    pub fn all() -> String {
        format!("kinds of rails separated by commas: {}", KINDS.join(", "))
    }

    /// Which of these rails are of the kinds (bit n: rail n).
    pub fn of_rails(self, rails: &[String]) -> u32 {
        let kind = |rail: &String| {
            let named = rail.split_once(':').map_or("udp", |(kind, _)| kind);
            KINDS.iter().position(|kind| *kind == named).unwrap_or(0)
        };
        let mut mask = 0;
        for (at, rail) in rails.iter().enumerate().take(u32::BITS as usize) {
            mask |= u32::from(self.0 >> kind(rail) & 1) << at;
        }
        mask
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

    #[test]
    fn rails_are_of_the_kinds_that_their_names_say() {
        let kinds = RailKinds::parse(" rc, UDP,").unwrap();
        assert_eq!(kinds.names(), "udp,rc");
        let rails = ["rc:mlx5_0", "eth0", "tcp:eth0", "fe80::1", "shm:0"].map(str::to_owned);
        assert_eq!(kinds.of_rails(&rails), 0b01011);
        assert_eq!(RailKinds::parse("rc,ib"), None);
        assert_eq!(RailKinds::default().of_rails(&rails), 0);
    }
}
