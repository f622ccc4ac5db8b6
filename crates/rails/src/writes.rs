//! What rails that write into the memory of their peers take, beside packets: RDMA, of which no
//! rail of this crate is yet (the simulator's are, see [`crate::RailTx::write`]), and UDP, whose
//! datagrams the receiving half has the kernel put in place ([`crate::RailTx::write_direct`]).

use marline_wire::DirectHead;

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
    /// By datagrams ([`crate::RailTx::write_direct`]): the bytes have been read when the call
    /// returns, and are lost or come too late as packets are. What has landed once, or is known to
    /// be right ([`crate::RailTx::seal`]), is never landed on again.
    Direct,
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

impl Write<'_> {
    /// What goes before its bytes, and before `packet`, where it leaves as datagrams.
    pub fn head(&self, packet: &[u8]) -> DirectHead {
        DirectHead {
            key: self.key,
            offset: self.offset,
            len: self.pieces.iter().map(|piece| piece.len as u32).sum(),
            packet_len: packet.len() as u16,
            spare: 0,
        }
    }
}
