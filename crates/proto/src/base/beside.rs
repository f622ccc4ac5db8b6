//! Work for the owner that goes beside the packet just made: writes, offers.

use crate::base::types::sum_seed;

/// A write that goes with the packet just made.
#[derive(Clone, Copy, Debug)]
pub struct WriteOut {
    /// Send operation in the engine.
    pub handle: u32,
    /// Offset in the message and in the peer's registered memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The peer's key.
    pub key: u64,
    /// Where the sum goes in the packet.
    pub sum_at: usize,
    /// Seed of the sum.
    pub seed: u64,
    /// It carries a sum; else 0 in its place.
    pub summed: bool,
    /// Longest datagram that the path takes.
    pub segment: usize,
    /// Most bytes of a write on that path.
    pub span: u64,
    /// Where what the receiver wants of the message ends.
    pub message_end: u64,
    pub(crate) message: (u64, u32, bool),
}

impl WriteOut {
    /// Where the write ends in the message.
    pub fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Seed of the sum of another write of the same message.
    pub fn seed_of(&self, offset: u64, len: usize) -> u64 {
        let (id, number, reply) = self.message;
        sum_seed(id, number, reply, offset, len)
    }
}

/// A segment of a send's memory that is offered in the packet just made ([`Node::take_offer`]).
#[derive(Clone, Copy, Debug)]
pub struct OfferOut {
    /// Send operation in the engine.
    pub handle: u32,
    /// Local rail.
    pub rail: u8,
    /// Bytes of the message.
    pub total: u64,
    /// Where the segment begins; the first opens the memory.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// Where the sum goes in the packet; the key goes before it.
    pub sum_at: usize,
    /// It carries a sum; else 0 in its place.
    pub summed: bool,
    pub(crate) message: (u64, u32),
}

impl OfferOut {
    /// Seed of the sum of a segment of the message.
    pub fn seed_of(&self, at: u64, len: usize) -> u64 {
        sum_seed(self.message.0, self.message.1, false, at, len)
    }
}
