//! Operations of an endpoint and the application's memory, which is real memory, since engines
//! follow pointers. Its contents reveal wrong writes: guards on both sides, a filler where nothing
//! was received, and, after an operation's end, a poison that must stay.

use crate::base::content::Content;
use crate::truth::messages::Match;
use crate::truth::remote::AtomicOp;
use marline_engine::IoVec;
use std::cell::RefCell;

/// Guard bytes on both sides of a buffer.
const GUARD: usize = 32;
const GUARD_BYTE: u8 = 0xee;
/// The filler of receive buffers, at least at the beginning and the end.
pub(crate) const FILLER: u8 = 0xc3;
const FILLED: usize = 8_192;
const FILLED_AT_END: usize = 1_024;
/// The poison written to a returned buffer: over its whole first and last `POISONED` bytes, and a
/// line in each `STRIDE` between them, so that any write of a packet's length hits poison. (Shorter
/// writes may be missed; poisoning all bytes would cost much time.)
const POISON: u8 = 0x5a;
const POISONED: usize = 2_048;
const STRIDE: usize = 1_024;
const LINE: usize = 64;
/// Sizes of memory blocks: powers of two from this one on, with three more sizes between successive
/// powers above `FINE`. Most receives have room for 128 KiB and their guards.
const LEAST: usize = 256;
const FINE: usize = 64 << 10;
/// Bytes of free blocks kept per thread: as many as a cluster's operations have open at once.
/// (Otherwise clearing new blocks would dominate the time.)
const SPARE_BYTES: usize = 1 << 30;
/// Bytes of finished buffers that are watched.
const RETIRED_BYTES: usize = 8 << 20;
/// Most places at which an operation's memory is split.
pub const CUTS_MAX: usize = 6;
/// Bytes poisoned at the end of an operation or after a failure (the operation's buffer may be
/// longer).
pub(crate) const SCRAP: usize = 65_536;

/// Ranges of a buffer, from and to.
type Ranges = Vec<(usize, usize)>;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare::new()) };
}

/// Free blocks, kept across runs, each with its (empty) list of poisoned ranges.
struct Spare {
    by_class: Vec<Vec<(Vec<u8>, Ranges)>>,
    bytes: usize,
}

impl Spare {
    const fn new() -> Spare {
        Spare {
            by_class: Vec::new(),
            bytes: 0,
        }
    }

    fn take(&mut self, class: usize) -> Option<(Vec<u8>, Ranges)> {
        let spare = self.by_class.get_mut(class)?.pop()?;
        self.bytes -= spare.0.len();
        Some(spare)
    }

    /// Keeps a block if there is room.
    fn keep(&mut self, class: usize, block: Vec<u8>, ranges: Ranges) {
        if self.bytes + block.len() > SPARE_BYTES {
            return;
        }
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, Vec::new);
        }
        self.bytes += block.len();
        self.by_class[class].push((block, ranges));
    }
}

/// The memory of an operation. No block is freed during a run, so that a wrong write of an engine
/// is detected and does no other harm.
#[derive(Debug, Default)]
pub struct Buffer {
    block: Vec<u8>,
    len: usize,
    /// Ranges that the engine has finished with.
    poisoned: Ranges,
}

impl Buffer {
    /// `len` bytes of arbitrary contents between guards.
    fn guarded(len: usize) -> Buffer {
        let (class, whole) = size_class(len + 2 * GUARD);
        let spare = SPARE.with_borrow_mut(|s| s.take(class));
        let (mut block, poisoned) = spare.unwrap_or_else(|| (vec![0; whole], Vec::new()));
        block[..GUARD].fill(GUARD_BYTE);
        block[GUARD + len..2 * GUARD + len].fill(GUARD_BYTE);
        Buffer {
            block,
            len,
            poisoned,
        }
    }

    /// A receive buffer of `len` bytes, filled at both ends.
    pub fn new(len: usize) -> Buffer {
        let mut buffer = Buffer::guarded(len);
        let bytes = &mut buffer.block[GUARD..GUARD + len];
        bytes[..len.min(FILLED)].fill(FILLER);
        bytes[tail_of(len)..].fill(FILLER);
        buffer
    }

    /// A message: `len` bytes of content from `base`.
    pub fn with(content: &Content, base: u64, len: usize) -> Buffer {
        let mut buffer = Buffer::guarded(len);
        content.copy(base, &mut buffer.block[GUARD..GUARD + len]);
        buffer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Fills the whole buffer, not only its ends.
    pub fn fill_all(&mut self) {
        self.block[GUARD..GUARD + self.len].fill(FILLER);
    }

    /// The owner writes the content from `base` into a range.
    pub fn fill_with(&mut self, content: &Content, base: u64, (from, to): (usize, usize)) {
        content.copy(base, &mut self.block[GUARD + from..GUARD + to]);
    }

    /// The bytes in `from..to`, if inside.
    pub fn get(&self, from: usize, to: usize) -> Option<&[u8]> {
        let fits = from <= to && to <= self.len;
        fits.then(|| &self.block[GUARD + from..GUARD + to])
    }

    /// The pieces of an operation, split at `cuts`.
    pub fn pieces(&mut self, cuts: &[usize]) -> Pieces {
        let base = self.block.as_mut_ptr();
        let (mut pieces, mut at) = (Pieces::default(), 0);
        for end in cuts.iter().copied().chain([self.len]) {
            let from = at;
            at = end.min(self.len).max(from);
            pieces.push(IoVec {
                base: base.wrapping_add(GUARD + from),
                len: at - from,
            });
        }
        pieces
    }

    /// The offset of an address.
    pub fn offset_of(&self, address: *mut u8) -> u64 {
        (address as u64).wrapping_sub(self.block.as_ptr() as u64 + GUARD as u64)
    }

    /// The addresses of the first byte and after the last.
    pub fn range(&self) -> (usize, usize) {
        let from = self.block.as_ptr() as usize + GUARD;
        (from, from + self.len)
    }

    /// `len` bytes at an address, if inside.
    pub fn at_address(&self, address: usize, len: usize) -> Option<&[u8]> {
        if self.block.is_empty() {
            return None;
        }
        let at = address.checked_sub(self.range().0)?;
        self.get(at, at.checked_add(len)?)
    }

    /// A rail writes at an address.
    pub fn put(&mut self, address: usize, bytes: &[u8]) -> Result<(), &'static str> {
        let at = address - self.range().0;
        let end = at + bytes.len();
        if self
            .poisoned
            .iter()
            .any(|&(from, to)| at < to && from < end)
        {
            return Err("a write lands in memory that was given back");
        }
        self.block[GUARD + at..GUARD + end].copy_from_slice(bytes);
        Ok(())
    }

    /// The byte stored by a reader of the memory.
    pub(crate) const KEPT: u8 = 0x3d;

    /// A reader stores into a range.
    pub(crate) fn keep(&mut self, (from, to): (usize, usize)) {
        self.block[GUARD + from..GUARD + to].fill(Buffer::KEPT);
    }

    /// Poisons a range that the engine has finished with, since the application may reuse it.
    pub fn poison(&mut self, from: usize, to: usize) {
        let (from, to) = (from.min(self.len), to.min(self.len));
        if from < to {
            for (from, to) in marks(from, to) {
                self.block[GUARD + from..GUARD + to].fill(POISON);
            }
            self.poisoned.push((from, to));
        }
    }

    /// Checks that no protected byte changed; `used`: number of bytes at the start that were
    /// written legitimately.
    pub fn check(&self, used: usize) -> Result<(), &'static str> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = &self.block;
        let after = &block[GUARD + self.len..2 * GUARD + self.len];
        if !all_are(&block[..GUARD], GUARD_BYTE) || !all_are(after, GUARD_BYTE) {
            return Err("write beyond a buffer");
        }
        let filled = self.len.min(FILLED);
        let tail = tail_of(self.len).max(used.min(self.len));
        let start = &block[GUARD + used.min(filled)..GUARD + filled];
        if !all_are(start, FILLER) || !all_are(&block[GUARD + tail..GUARD + self.len], FILLER) {
            return Err("write where nothing was received");
        }
        Ok(())
    }

    /// Checks that nothing was written into `from..to` of a filled buffer.
    pub fn check_untouched(&self, from: usize, to: usize) -> Result<(), &'static str> {
        let to = to.min(self.len).max(from);
        let untouched = all_are(&self.block[GUARD + from..GUARD + to], FILLER);
        untouched.then_some(()).ok_or("write beside its place")
    }

    fn check_poison(&self) -> Result<(), &'static str> {
        self.check(self.len)?;
        let mut marks = self.poisoned.iter().flat_map(|&(from, to)| marks(from, to));
        let whole = marks.all(|(from, to)| all_are(&self.block[GUARD + from..GUARD + to], POISON));
        whole
            .then_some(())
            .ok_or("write into memory of a finished operation")
    }
}

impl Drop for Buffer {
    /// Keeps the block for another buffer.
    fn drop(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let (class, _) = size_class(self.block.len());
        let block = std::mem::take(&mut self.block);
        let mut ranges = std::mem::take(&mut self.poisoned);
        ranges.clear();
        // Fails during the end of a thread.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().keep(class, block, ranges));
    }
}

/// The pieces of an operation: few, so that no allocation is needed.
pub struct Pieces {
    list: [IoVec; CUTS_MAX + 1],
    count: usize,
}

impl Pieces {
    fn push(&mut self, piece: IoVec) {
        self.list[self.count] = piece;
        self.count += 1;
    }
}

impl Default for Pieces {
    /// No pieces.
    fn default() -> Pieces {
        let none = IoVec {
            base: std::ptr::null_mut(),
            len: 0,
        };
        Pieces {
            list: [none; CUTS_MAX + 1],
            count: 0,
        }
    }
}

impl std::ops::Deref for Pieces {
    type Target = [IoVec];

    fn deref(&self) -> &[IoVec] {
        &self.list[..self.count]
    }
}

/// The beginning of a buffer's filled end.
fn tail_of(len: usize) -> usize {
    len.saturating_sub(FILLED_AT_END)
}

/// The poisoned places of a range: start, end, and lines between.
fn marks(from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let start = to.min(from + POISONED);
    let end = start.max(to.saturating_sub(POISONED));
    let lines = (start..end)
        .step_by(STRIDE)
        .map(move |at| (at, end.min(at + LINE)));
    [(from, start), (end, to)].into_iter().chain(lines)
}

/// True if all bytes have this value: the first byte has it, and each other byte equals the one
/// before. (The C library compares with wider registers than a loop.)
fn all_are(bytes: &[u8], value: u8) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == value && *rest == bytes[..rest.len()],
    }
}

/// Class and size of the blocks for this number of bytes.
fn size_class(bytes: usize) -> (usize, usize) {
    let whole = bytes.next_power_of_two().max(LEAST);
    let (half, steps) = (whole / 2, if whole <= FINE { 1 } else { 4 });
    let step = half / steps;
    let taken = bytes.saturating_sub(half).div_ceil(step).max(1);
    let taken = if steps == 1 { 1 } else { taken };
    (4 * whole.ilog2() as usize + taken - 1, half + taken * step)
}

/// Buffers of finished operations, watched for some time.
#[derive(Debug, Default)]
pub struct RetiredBuffers {
    buffers: std::collections::VecDeque<(u32, Buffer)>,
    bytes: usize,
}

impl RetiredBuffers {
    /// Adds an operation's buffer; finds out if an older one was damaged.
    pub fn tear_down(&mut self, handle: u32, buffer: Buffer) -> Result<(), (u32, &'static str)> {
        self.bytes += buffer.block.len();
        self.buffers.push_back((handle, buffer));
        if self.bytes > RETIRED_BYTES {
            return self.look_at_oldest();
        }
        Ok(())
    }

    /// True if the address is in a watched buffer.
    pub fn holds(&self, address: usize) -> bool {
        let mut buffers = self.buffers.iter();
        buffers.any(|(_, b)| b.at_address(address, 1).is_some())
    }

    fn look_at_oldest(&mut self) -> Result<(), (u32, &'static str)> {
        let Some((handle, buffer)) = self.buffers.pop_front() else {
            return Ok(());
        };
        self.bytes -= buffer.block.len();
        buffer.check_poison().map_err(|text| (handle, text))
    }

    /// Checks all remaining buffers.
    pub fn empty(&mut self) -> Result<(), (u32, &'static str)> {
        while !self.buffers.is_empty() {
            self.look_at_oldest()?;
        }
        Ok(())
    }
}

/// The kind of an operation.
#[derive(Debug)]
pub enum OpKind {
    /// A send.
    Send {
        /// The message.
        uid: u32,
        /// True if the send's entry means delivery; false if it means that the buffer is free.
        delivery: bool,
        /// True if the engine owns the buffer until the entry.
        held: bool,
        /// True if an entry is due.
        entry: bool,
    },
    /// A receive.
    Recv(Box<RecvOp>),
    /// A remote read, by its segments.
    Read(Vec<ReadOp>),
    /// A remote write.
    Put {
        /// The target.
        dst: u32,
        /// The message of the write's first segment; `NONE` for a write without bytes.
        uid: u32,
        /// Number of messages from `uid` on, one per segment.
        pieces: u32,
        /// True if success writes an entry.
        entry: bool,
        /// Remote CQ data, which follows after all bytes.
        data: Option<u64>,
    },
    /// An atomic operation.
    Atomic(Box<AtomicOp>),
    /// Memory open to peers.
    Window,
    /// A peek; the message that it finds may be claimed.
    Peek {
        /// The message that the peek must find.
        want: Option<u32>,
        /// True if the message is claimed.
        claim: bool,
    },
    /// A claimed message is discarded.
    Discard,
}

/// A receive.
#[derive(Debug, Default)]
pub struct RecvOp {
    /// The source that the receive names, if any.
    pub source: Option<u32>,
    /// Ignored tag bits.
    pub ignore: u64,
    /// True for a multi-receive.
    pub multi: bool,
    /// Matched messages, and whether each completion came.
    pub matches: Vec<(Match, bool)>,
    /// Cancelled.
    pub cancelled: bool,
    /// True if a message for this multi-receive was lost with its sender.
    pub lost_with_sender: bool,
    /// True if parts of a message that never became whole may lie in the buffer.
    pub has_parts: bool,
}

/// A remote read.
#[derive(Debug, Default)]
pub struct ReadOp {
    /// The target.
    pub server: u32,
    /// The base of the expected content.
    pub base: u64,
    /// Offset of the read bytes in the operation.
    pub from: u64,
    /// Length.
    pub len: u64,
    /// Key in the request.
    pub key: u64,
    /// Address in the request.
    pub addr: u64,
    /// The window for which the read is meant or to which it was admitted, if any.
    pub window: u32,
    /// Offset in the window.
    pub at: u64,
    /// True once the request arrived.
    pub asked: bool,
    /// True if the request must be refused.
    pub bad: bool,
    /// True if the request may be refused: the memory was closed meanwhile.
    pub closed: bool,
    /// True if a write overlaps the range.
    pub loose: bool,
    /// True if the request was admitted to another window than meant.
    pub stray: bool,
}

/// An operation. Its context is its index plus one.
#[derive(Debug)]
pub struct Op {
    /// The operation's kind.
    pub kind: OpKind,
    /// The operation's memory.
    pub buffer: Buffer,
    /// World time of posting.
    pub posted_ns: u64,
    /// World time of the end.
    pub done_ns: Option<u64>,
    /// True if the operation counts for the application's round.
    pub in_round: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at the ends of a returned buffer is checked, and any packet's length between
    /// them.
    #[test]
    fn a_late_write_is_noticed() {
        let len = 20_000;
        let noticed = |at: usize, bytes: usize| {
            let mut buffer = Buffer::new(len);
            buffer.poison(0, len);
            assert_eq!(buffer.check_poison(), Ok(()));
            buffer.block[GUARD + at..GUARD + at + bytes].fill(1);
            buffer.check_poison().is_err()
        };
        for at in (0..POISONED).chain(len - POISONED..len).step_by(7) {
            assert!(noticed(at, 1), "{at}");
        }
        for at in 0..len - STRIDE {
            assert!(noticed(at, STRIDE), "{at}");
        }
    }

    #[test]
    fn blocks_fit_requests_and_return_to_their_size_class() {
        for bytes in (1..5_000).chain((5_000..9_000_000).step_by(997)) {
            let (class, whole) = size_class(bytes);
            assert!(
                whole >= bytes && whole < 2 * bytes.max(LEAST),
                "{bytes}: {whole}"
            );
            assert_eq!(size_class(whole), (class, whole), "{bytes}");
        }
    }
}
