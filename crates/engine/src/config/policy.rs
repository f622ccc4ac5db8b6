//! The user's policy for sharing work among rails.

use marline_proto::RailPolicy;
use marline_wire::RailKind;

/// A group of rail kinds with a common name.
pub struct KindGroup {
    name: &'static str,
    kinds: &'static [RailKind],
}

/// All groups.
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

/// The policy for sharing work among the rails to a peer. A rail that reaches only some peers is
/// used for those peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailsPolicy {
    /// Large messages are striped over all rails, small ones use the best.
    Stripe,
    /// All traffic on the best rail; the others are standby.
    ActiveStandby,
    /// All traffic on rails of this group (by index in `GROUPS`) where one works; the others are
    /// standby.
    Prefer(usize),
}

impl RailsPolicy {
    /// The policy with this name.
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

    /// The policy's name.
    pub fn name(self) -> String {
        match self {
            RailsPolicy::Stripe => "stripe".to_owned(),
            RailsPolicy::ActiveStandby => "active-standby".to_owned(),
            RailsPolicy::Prefer(at) => format!("prefer={}", GROUPS[at].name),
        }
    }

    /// All names as text.
    pub fn names() -> String {
        let groups: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        let groups = groups.join(", ");
        format!("stripe, active-standby, or prefer=KIND with a KIND of {groups}")
    }

    /// The policy in the protocol's terms.
    pub fn of_node(self) -> RailPolicy {
        match self {
            RailsPolicy::Stripe => RailPolicy::Stripe,
            RailsPolicy::ActiveStandby => RailPolicy::Standby,
            RailsPolicy::Prefer(at) => RailPolicy::Prefer(GROUPS[at].kinds),
        }
    }

    /// True if rails of this kind are preferred.
    pub fn prefers(self, kind: RailKind) -> bool {
        matches!(self, RailsPolicy::Prefer(at) if GROUPS[at].kinds.contains(&kind))
    }
}

/// A set of rail kinds, one bit for each of [`KINDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailKinds(u8);

/// Prefixes of rail names by kind.
const KINDS: [&str; 6] = ["udp", "tcp", "shm", "rc", "uc", "ud"];

impl RailKinds {
    /// `rc` alone.
    pub const RELIABLE_CONNECTIONS: RailKinds = RailKinds(1 << 3);

    /// True if the sets intersect.
    pub(crate) fn has(self, some: RailKinds) -> bool {
        self.0 & some.0 != 0
    }

    /// Parses a list of kinds.
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

    /// Formats the set as a list.
    pub fn names(self) -> String {
        let has = |(at, _): &(usize, &&str)| self.0 >> at & 1 == 1;
        let names = KINDS.iter().enumerate().filter(has);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    }

    /// Description of all kinds as text.
    pub fn all() -> String {
        format!("kinds of rails separated by commas: {}", KINDS.join(", "))
    }

    /// Rails of these kinds (bit n: rail n).
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
