//! Evidence that a peer's process has ended.

/// Evidence that a peer's process has ended, from its host's refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The peer's abstract socket name on this host is refused. The name belonged to the peer
    /// alone.
    NoSuchName,
    /// The peer's connections ended without a BYE, as when a process ends, and new ones are
    /// refused.
    Ended,
    /// Packets and connections are refused; this proves the end at once.
    Both,
    /// Packets to the peer are refused, while packets to other processes at its address arrive.
    OneProcess,
    /// Packets were refused for the required time.
    Packets,
    /// Connections were refused for the required time.
    Connections,
}

impl Evidence {
    /// Returns whether the process is certainly gone, since no filter on the way can cause this
    /// evidence.
    pub fn is_certain(self) -> bool {
        matches!(self, Evidence::NoSuchName | Evidence::Ended)
    }
}
