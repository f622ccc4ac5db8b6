//! Table of operations by handle, the number by which the protocol names their memory.

use crate::api::{CqId, EpId, IoVec, OpError, OpFlags};
use crate::memory::pool::Buffer;
use marline_proto::{Claim, PeerId};

/// User memory of one operation: up to four pieces inline, more on the heap.
#[derive(Debug)]
pub enum Pieces {
    /// Up to four pieces, and their number.
    Few([IoVec; 4], usize),
    /// More than four pieces.
    Many(Box<[IoVec]>),
}

impl Pieces {
    /// Copies the piece descriptors, not the bytes.
    pub fn new(iov: &[IoVec]) -> Pieces {
        if iov.len() <= 4 {
            let mut few = [IoVec {
                base: std::ptr::null_mut(),
                len: 0,
            }; 4];
            few[..iov.len()].copy_from_slice(iov);
            return Pieces::Few(few, iov.len());
        }
        Pieces::Many(iov.into())
    }

    /// The pieces.
    #[inline]
    pub fn as_slice(&self) -> &[IoVec] {
        match self {
            Pieces::Few(few, n) => &few[..*n],
            Pieces::Many(many) => many,
        }
    }

    /// Pieces of the range `offset .. offset + len`; empty if this is empty.
    pub fn range(&self, offset: u64, len: usize) -> Pieces {
        if let Some(base) = self.whole(offset, len) {
            return Pieces::new(&[IoVec { base, len }]);
        }
        let mut part = Vec::new();
        self.for_range(offset, len, |base, len| part.push(IoVec { base, len }));
        Pieces::new(&part)
    }

    /// First byte of the first piece.
    pub fn base(&self) -> *mut u8 {
        self.as_slice()
            .first()
            .map_or(std::ptr::null_mut(), |p| p.base)
    }

    /// Address of `offset`, if `len` bytes from there lie in the first piece (usually the only
    /// one).
    #[inline]
    pub fn whole(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let first = self.as_slice().first()?;
        let end = (offset as usize).checked_add(len)?;
        (end <= first.len).then(|| first.base.wrapping_add(offset as usize))
    }

    /// Calls `f(piece address, bytes)` for the range `offset .. offset + len`.
    #[inline]
    pub fn for_range(&self, offset: u64, len: usize, mut f: impl FnMut(*mut u8, usize)) {
        let (mut skip, mut left) = (offset as usize, len);
        for piece in self.as_slice() {
            if left == 0 {
                return;
            }
            if skip >= piece.len {
                skip -= piece.len;
                continue;
            }
            let take = left.min(piece.len - skip);
            // `skip < piece.len`, so the pointer stays inside the piece.
            f(piece.base.wrapping_add(skip), take);
            left -= take;
            skip = 0;
        }
    }
}

/// A send, a remote write, or the response to a read.
#[derive(Debug)]
pub struct SendOp {
    /// Endpoint.
    pub ep: EpId,
    /// Source bytes: user memory or `log`.
    pub pieces: Pieces,
    /// Copy of the message in the sender-based log.
    pub log: Option<Buffer>,
    /// Queue for the completion at delivery.
    pub on_delivery: Option<CqId>,
    /// Caller's context.
    pub context: usize,
    /// Completion flags.
    pub flags: u64,
    /// Set if the send answers a read of registered memory.
    pub serves: Option<Served>,
    /// Number of RDMA writes that still read the send's memory.
    pub writes: u16,
    /// The send's number among borrowed sends (see `memory/borrowed.rs`); 0: not borrowed.
    pub borrowed: u64,
    /// Result for the peer (delivered or not) while `writes` are still outstanding.
    pub ended: Option<Result<(), OpError>>,
}

/// The read that a response answers.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Key of the region.
    pub region: u64,
    /// The reading peer.
    pub peer: PeerId,
    /// The peer's number for the read.
    pub number: u32,
    /// True for a part of an operation that is not counted with this part.
    pub part: bool,
}

/// The source of bytes that arrive for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for messages that match it.
    Receive,
    /// Bytes read from a peer's memory.
    Read,
    /// Bytes that a peer writes into the region with this key.
    Put(u64, Claim),
}

/// A posted receive, a remote read, or a peer's remote write.
#[derive(Debug)]
pub struct RecvOp {
    /// Endpoint.
    pub ep: EpId,
    /// Destination.
    pub pieces: Pieces,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub options: OpFlags,
    /// True for tagged messages.
    pub tagged: bool,
    /// Source of the bytes that arrive.
    pub role: Role,
    /// Cancelled while messages were arriving; the last of them ends the receive.
    pub cancelled: bool,
}

/// Handles to operations; a handle is reused after `remove`.
#[derive(Debug)]
pub struct OpTable<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> OpTable<T> {
    /// Heap bytes of the table, including free entries but not memory owned by entries.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<T>>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Default for OpTable<T> {
    fn default() -> OpTable<T> {
        OpTable {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> OpTable<T> {
    /// Stores a value and returns its handle.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(handle) = self.free.pop() {
            self.slots[handle as usize] = Some(value);
            return handle;
        }
        self.slots.push(Some(value));
        self.slots.len() as u32 - 1
    }

    /// The value of a handle.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<&T> {
        self.slots.get(handle as usize)?.as_ref()
    }

    /// Mutable access to the value of a handle.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }

    /// Number of stored values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Removes a value and frees its handle.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let value = self.slots.get_mut(handle as usize)?.take()?;
        self.free.push(handle);
        Some(value)
    }

    /// True if some value satisfies `f`.
    pub fn any(&self, f: impl FnMut(&T) -> bool) -> bool {
        self.slots.iter().flatten().any(f)
    }

    /// Handles of values that satisfy `f`.
    pub fn find(&self, f: impl Fn(&T) -> bool) -> Vec<u32> {
        let hit = |(i, s): (usize, &Option<T>)| s.as_ref().filter(|v| f(v)).map(|_| i as u32);
        self.slots.iter().enumerate().filter_map(hit).collect()
    }
}
