//! What rails that write into the memory of their peers (RDMA) take, beside packets. No rail of
//! this crate can yet; the simulator's can. See [`crate::RailTx::write`].

/// Whether a rail writes, and what its packets say of its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It cannot.
    #[default]
    No,
    /// The packet that tells of a write may arrive before it, or without it (as unreliable
    /// connections do).
    Unordered,
    /// That packet arrives after the write and never without it (as reliable connections do).
    Ordered,
}

/// A contiguous part of the memory that a write reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub base: *const u8,
    /// Bytes.
    pub len: usize,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The peer's key ([`crate::RailTx::grant`]).
    pub key: u64,
    /// Offset in the granted memory, in bytes.
    pub offset: u64,
    /// What is written, one piece after another. The caller keeps this memory valid until
    /// [`crate::RailEvent::Written`]. A rail with a limit posts several writes before the packet.
    pub pieces: &'a [Piece],
    /// The caller's name for the write.
    pub token: u64,
}
