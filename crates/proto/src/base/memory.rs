//! Memory of the engine as a node sees it: destinations of bytes and operations on them.

/// Destination of a fragment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// The memory of posted receive (or read) `handle`: copy the first `copy` bytes to `offset`,
    /// and sum all bytes.
    Posted {
        /// Receive operation.
        handle: u32,
        /// Offset in the operation's memory.
        offset: u64,
        /// Bytes to copy; the remainder is truncated.
        copy: usize,
    },
    /// The bounce buffer of inbound message `inbound`, which has `total` bytes.
    Bounce {
        /// The node's name for the inbound message, unique among live ones.
        inbound: u64,
        /// Bytes to reserve at the first fragment.
        total: u64,
        /// Offset in the bounce buffer.
        offset: u64,
    },
    /// No memory: only sum the bytes (discarded messages).
    Discard,
}

/// A received payload and the data to verify it.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Sum in the frame.
    pub sum: u64,
    /// Seed of the sum.
    pub seed: u64,
    /// Algorithm number in the packet.
    pub algorithm: u8,
    /// Part of the range is already stored: verify the bytes before writing them, so that bad bytes
    /// never overwrite good ones.
    pub verify_first: bool,
}

/// Place and sum of a fragment that a rail wrote into registered memory, or read.
#[derive(Clone, Copy, Debug)]
pub struct WrittenSum {
    /// Local rail of the write; `None`: the fragment was read, not written.
    pub rail: Option<u8>,
    /// The node's name for the inbound message.
    pub inbound: u64,
    /// Offset of the fragment in the message.
    pub at: u64,
    /// Bytes of the fragment.
    pub len: usize,
    /// Sum in the frame.
    pub sum: u64,
    /// Seed of the sum.
    pub seed: u64,
    /// Algorithm number.
    pub algorithm: u8,
}

/// Result of checking the memory of a written fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCheck {
    /// The bytes match the fragment's sum.
    Right,
    /// The bytes do not match the sum.
    Wrong,
    /// The memory is unchanged: the write was lost, or found no registered memory.
    #[default]
    Missing,
}

/// The engine's memory, as the node sees it.
pub trait Memory {
    /// Copies one payload to its destination and sums it. Returns whether the sum was correct.
    /// (After a wrong sum the range, which is not committed yet, contains garbage.)
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool;
    /// Stores verified bytes in the memory of operation `handle`, which its program sees during the
    /// operation: each byte once, in order. `last`: all bytes stored before must be visible before
    /// the last of these.
    fn show(&mut self, _handle: u32, _offset: u64, _bytes: &[u8], _last: bool) {}
    /// Checks the memory of a fragment that was written.
    fn written(&mut self, _landing: &Landing, _sum: &WrittenSum) -> WriteCheck {
        WriteCheck::Missing
    }
    /// Deregisters the memory of inbound message `inbound`: no write lands afterwards.
    fn deregister(&mut self, _inbound: u64) {}
}

/// The end of a remote write, which waits in the bounce buffer of inbound message `inbound`: store
/// its first `len` bytes at `offset` of the memory of `handle`, after all other bytes of the write,
/// then free the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutEnd {
    /// Operation.
    pub handle: u32,
    /// Inbound message with the bounce buffer.
    pub inbound: u64,
    /// Offset in the operation's memory.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}
