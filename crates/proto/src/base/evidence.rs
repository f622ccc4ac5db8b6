//! Evidence that a peer's process has ended.

/// Evidence that a peer's process has ended, from its host's refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// No process on this host has the peer's name, which no other process ever had.
    NoSuchName,
    /// The peer's connections ended without a BYE, as those of an ending process do, and new ones
    /// are refused.
    Ended,
    /// Packets and connections are refused; believed at once.
    Both,
    /// Packets to the peer are refused, while packets to other processes at its address arrive.
    OneProcess,
    /// Packets were refused for so long.
    Packets,
    /// Connections were refused for the required time.
    Connections,
}

impl Evidence {
    /// Returns whether the process is certainly gone: no filter on the way causes the same.
    pub fn is_certain(self) -> bool {
        matches!(self, Evidence::NoSuchName | Evidence::Ended)
    }
}
