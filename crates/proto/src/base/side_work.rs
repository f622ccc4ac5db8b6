//! Work of the owner that accompanies the packet just built: writes and rkey advertisements.

use crate::base::types::sum_seed;

/// A write into the peer's registered memory that accompanies the packet just built.
#[derive(Clone, Copy, Debug)]
pub struct WriteOut {
    /// Send operation in the engine.
    pub handle: u32,
    /// Offset in the message and in the peer's registered memory.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The peer's rkey.
    pub key: u64,
    /// Offset of the sum in the packet.
    pub sum_at: usize,
    /// Seed of the sum.
    pub seed: u64,
    /// The write carries a sum; otherwise the sum field is 0.
    pub summed: bool,
    /// Longest datagram of the path in bytes.
    pub segment: usize,
    /// Most bytes of a write on the path.
    pub span: u64,
    /// End of the bytes that the receiver wants of the message.
    pub message_end: u64,
    pub(crate) message: (u64, u32, bool),
}

impl WriteOut {
    /// End of the write in the message.
    pub fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Seed of the sum of another write of the same message.
    pub fn seed_of(&self, offset: u64, len: usize) -> u64 {
        let (id, number, reply) = self.message;
        sum_seed(id, number, reply, offset, len)
    }
}

/// A segment of a send's memory advertised by the last packet ([`Node::take_advertisement`]).
#[derive(Clone, Copy, Debug)]
pub struct AdvertisementOut {
    /// Send operation in the engine.
    pub handle: u32,
    /// Local rail.
    pub rail: u8,
    /// Bytes of the message.
    pub total: u64,
    /// Offset of the segment; the first segment opens the memory.
    pub at: u64,
    /// Bytes of the segment.
    pub len: u64,
    /// Offset of the sum in the packet; the rkey precedes it.
    pub sum_at: usize,
    /// The segment carries a sum; otherwise the sum field is 0.
    pub summed: bool,
    pub(crate) message: (u64, u32),
}

impl AdvertisementOut {
    /// Seed of the sum of a segment of the message.
    pub fn seed_of(&self, at: u64, len: usize) -> u64 {
        sum_seed(self.message.0, self.message.1, false, at, len)
    }
}
