//! Operations by handle: the memory that a number in the protocol stands for.

use crate::api::{CqId, EpId, IoVec, OpError, OpFlags};
use crate::memory::pool::Buffer;
use marline_proto::{Claim, PeerId};

/// User memory of one operation: up to four pieces in place, more on the heap.
#[derive(Debug)]
pub enum Pieces {
    /// Few pieces.
    Few([IoVec; 4], usize),
    /// Many pieces.
    Many(Box<[IoVec]>),
}

impl Pieces {
    /// Remembers the pieces (not the bytes).
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

    /// `len` bytes of them (of none: none) from `offset` on.
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

    /// Address of `offset`, if `len` bytes from there lie in the first (mostly only) piece.
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
            // Staying inside the piece: `skip < piece.len`.
            f(piece.base.wrapping_add(skip), take);
            left -= take;
            skip = 0;
        }
    }
}

/// A send, a remote write, or the answer to a read.
#[derive(Debug)]
pub struct SendOp {
    /// Endpoint.
    pub ep: EpId,
    /// Where the bytes are: user memory or `log`.
    pub pieces: Pieces,
    /// The sender-based log (paper 2): our own copy.
    pub log: Option<Buffer>,
    /// The queue of the completion when everything was delivered.
    pub on_delivery: Option<CqId>,
    /// Caller's context.
    pub context: usize,
    /// Completion flags.
    pub flags: u64,
    /// It answers a read of registered memory.
    pub serves: Option<Served>,
    /// Writes that read its memory.
    pub writes: u16,
    /// Its number among the borrowed ones (see `memory/borrowed.rs`); 0: it is none.
    pub borrowed: u64,
    /// It is over for its peer (delivered or not), and waits for those.
    pub ended: Option<Result<(), OpError>>,
}

/// Which read an answer is for.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Key of the region.
    pub region: u64,
    /// The peer that reads.
    pub peer: PeerId,
    /// Its number for the read.
    pub number: u32,
    /// It is a part of an operation that is not counted with it.
    pub part: bool,
}

/// The kind of bytes that come in to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The messages that match it.
    Receive,
    /// Bytes that it reads of a peer's memory.
    Read,
    /// Bytes that a peer writes into the region of this key.
    Put(u64, Claim),
}

/// A posted receive, a remote read, or a peer's remote write.
#[derive(Debug)]
pub struct RecvOp {
    /// Endpoint.
    pub ep: EpId,
    /// Where to.
    pub pieces: Pieces,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub options: OpFlags,
    /// Tagged.
    pub tagged: bool,
    /// The kind of bytes that come in.
    pub role: Role,
    /// Taken back while messages came in; it ends with the last of them.
    pub cancelled: bool,
}

/// Handles to operations; a handle is reused after `remove`.
#[derive(Debug)]
pub struct OpTable<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> OpTable<T> {
    /// Heap bytes held, free entries included (not what the entries hold).
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
    /// Keeps a value.
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

    /// The value of a handle, to change it.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }

    /// Values kept.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives the value back and frees the handle.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let value = self.slots.get_mut(handle as usize)?.take()?;
        self.free.push(handle);
        Some(value)
    }

    /// Tells if there is a value that satisfies `f`.
    pub fn any(&self, f: impl FnMut(&T) -> bool) -> bool {
        self.slots.iter().flatten().any(f)
    }

    /// Handles with values that satisfy `f`.
    pub fn find(&self, f: impl Fn(&T) -> bool) -> Vec<u32> {
        let hit = |(i, s): (usize, &Option<T>)| s.as_ref().filter(|v| f(v)).map(|_| i as u32);
        self.slots.iter().enumerate().filter_map(hit).collect()
    }
}
