//! Memory of the engine, as a node sees it: where bytes belong, and what is done with them there.

/// Where a fragment's payload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// In the memory of posted receive (or read) `handle`: copy the first `copy` bytes to
    /// `offset`; sum all.
    Posted {
        /// Receive operation.
        handle: u32,
        /// Offset in its memory.
        offset: u64,
        /// Bytes to copy; the rest was truncated.
        copy: usize,
    },
    /// In the bounce buffer of inbound message `inbound`, which has `total` bytes.
    Bounce {
        /// The node's name for the inbound message, unique among live ones.
        inbound: u64,
        /// Bytes to reserve on the first fragment.
        total: u64,
        /// Offset in the bounce buffer.
        offset: u64,
    },
    /// Nowhere: sum only (discarded messages).
    Discard,
}

/// A received payload with what is needed to check it.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Sum in the frame.
    pub sum: u64,
    /// Seed of that sum.
    pub seed: u64,
    /// Algorithm number in the packet.
    pub algorithm: u8,
    /// Part of the range is already there: check first, then write only if right, so that
    /// good bytes are never overwritten by bad ones.
    pub verify_first: bool,
}

/// The place and the sum of a fragment that was written past the packets.
#[derive(Clone, Copy, Debug)]
pub struct WrittenSum {
    /// The local rail by which it was written; `None`: it was read.
    pub rail: Option<u8>,
    /// Name of the inbound message, and the fragment's offset in it.
    pub inbound: u64,
    /// See above.
    pub at: u64,
    /// Its bytes.
    pub len: usize,
    /// Sum in the frame.
    pub sum: u64,
    /// Seed of that sum.
    pub seed: u64,
    /// Algorithm number.
    pub algorithm: u8,
}

/// The finding of a look at the memory of a written fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCheck {
    /// Bytes with the fragment's sum.
    Right,
    /// Other bytes.
    Wrong,
    /// The bytes that lay there before: the write was lost, or found no registered memory.
    #[default]
    Missing,
}

/// The engine's memory, as the node sees it.
pub trait Memory {
    /// Copies and sums one payload to where it belongs; whether the sum was right. (A wrong one
    /// leaves rubbish in a range that is not yet committed.)
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool;
    /// Stores bytes that are known to be right in the memory of operation `handle`, which its
    /// program sees: each byte once, from the first to the last. `last`: what was stored there
    /// before becomes visible before the last of these.
    fn show(&mut self, _handle: u32, _offset: u64, _bytes: &[u8], _last: bool) {}
    /// Looks at the memory of a fragment that was written.
    fn written(&mut self, _landing: &Landing, _sum: &WrittenSum) -> WriteCheck {
        WriteCheck::Missing
    }
    /// Ends what was granted of the memory of inbound message `inbound`: no write lands after this.
    fn deregister(&mut self, _inbound: u64) {}
}

/// The end of a remote write, which waits in the bounce buffer of inbound message `inbound`: its
/// first `len` bytes are to be stored at `offset` of the memory of `handle`, as the last of the
/// write, and it is to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutEnd {
    /// Operation.
    pub handle: u32,
    /// See above.
    pub inbound: u64,
    /// Offset in the operation's memory.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}
