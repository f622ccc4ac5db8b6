//! The evidence of a peer's end.

/// The evidence of a peer's end, where its host refuses what is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// No process of this host has the name of the peer, which was never another process's.
    NoSuchName,
    /// Its connections ended as those of a process that ends do, without a word of it, and new ones
    /// are refused.
    Ended,
    /// Packets and connections are refused at once.
    Both,
    /// It is refused, while packets to other processes at the same address arrive.
    OneProcess,
    /// Packets were refused for so long.
    Packets,
    /// Connections were refused for so long.
    Connections,
}

impl Evidence {
    /// The process is gone for certain: no filter on the way does the same.
    pub fn is_certain(self) -> bool {
        matches!(self, Evidence::NoSuchName | Evidence::Ended)
    }
}
