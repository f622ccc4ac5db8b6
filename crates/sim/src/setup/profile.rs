//! Profiles: the kinds of faults that seeds draw.

/// A profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All faults, in a different subset for each seed.
    Swarm,
    /// No faults.
    Calm,
    /// Packet faults only (loss, reordering, corruption, ...).
    Loss,
    /// Rail faults only.
    Rails,
    /// Deaths, restarts, partitions, stops.
    Peers,
    /// Packet and rail faults on InfiniBand and RoCE rails.
    Verbs,
    /// The same; in a quarter of the seeds some rails are native.
    Native,
    /// Outages of all rails of a host for 1 to 100 s, with longer timeouts for silent peers.
    Outages,
    /// Groups and their broadcasts, with all faults ([`crate::group`]).
    Group,
}

impl Profile {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Swarm => "swarm",
            Profile::Calm => "calm",
            Profile::Loss => "loss",
            Profile::Rails => "rails",
            Profile::Peers => "peers",
            Profile::Verbs => "verbs",
            Profile::Native => "native",
            Profile::Outages => "outages",
            Profile::Group => "group",
        }
    }

    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        Some(match name {
            "swarm" => Profile::Swarm,
            "calm" => Profile::Calm,
            "loss" => Profile::Loss,
            "rails" => Profile::Rails,
            "peers" => Profile::Peers,
            "verbs" => Profile::Verbs,
            "native" => Profile::Native,
            "outages" => Profile::Outages,
            "group" => Profile::Group,
            _ => return None,
        })
    }
}
