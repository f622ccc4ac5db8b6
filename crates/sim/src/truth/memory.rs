//! Operations of one endpoint, and the user's memory. It is real memory, since engines follow
//! pointers; who may write where is seen by what is in it afterwards: guards on both sides, a
//! filler where nothing belongs, and, once an operation is over, a poison that must stay.

use crate::base::content::Content;
use crate::truth::messages::Match;
use crate::truth::remote::AtomicOp;
use marline_engine::IoVec;
use std::cell::RefCell;

/// Bytes on both sides of a buffer that stay as they are.
const GUARD: usize = 32;
const GUARD_BYTE: u8 = 0xee;
/// The bytes of a receive buffer before anything came, at least its first and its last.
pub(crate) const FILLER: u8 = 0xc3;
const FILLED: usize = 8_192;
const FILLED_AT_END: usize = 1_024;
/// The byte that the application writes over a buffer once it has it back: all over its first and
/// last
/// `POISONED` bytes, and in between a line of each `STRIDE`, so that whatever is as long as a
/// packet hits one. (Shorter ones may miss them. Writing and reading all of it took a twentieth of
/// the time.)
const POISON: u8 = 0x5a;
const POISONED: usize = 2_048;
const STRIDE: usize = 1_024;
const LINE: usize = 64;
/// Sizes of memory blocks are powers of two from here, with three more between each and the next
/// above `FINE`: most receives have room for 128 KiB and their guards.
const LEAST: usize = 256;
const FINE: usize = 64 << 10;
/// Bytes of empty blocks that a thread keeps: what the operations of a cluster have open at once.
/// (Two fifths of the time went into clearing new ones.)
const SPARE_BYTES: usize = 1 << 30;
/// Finished buffers are watched until there are so many bytes of them.
const GRAVEYARD_BYTES: usize = 8 << 20;
/// An operation's memory is cut in pieces at so many places, at most.
pub const CUTS_MAX: usize = 6;
/// Bytes that are written over when an operation is over, or failed (its buffer may be longer).
pub(crate) const SCRAP: usize = 65_536;

/// Ranges of a buffer, from and to.
type Ranges = Vec<(usize, usize)>;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare::new()) };
}

/// Empty blocks, kept from run to run, each with its (empty) list of poisoned ranges.
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

    /// Keeps a block, if there is room.
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

/// Memory of one operation. Blocks are never given back to the system while a run lasts, so that
/// an engine which writes where it must not is found out, and does no harm beyond.
#[derive(Debug, Default)]
pub struct Buffer {
    block: Vec<u8>,
    len: usize,
    /// Ranges that the engine is done with.
    poisoned: Ranges,
}

impl Buffer {
    /// `len` bytes of anything, between their guards.
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

    /// `len` bytes to receive into, filled at their start and end.
    pub fn new(len: usize) -> Buffer {
        let mut buffer = Buffer::guarded(len);
        let bytes = &mut buffer.block[GUARD..GUARD + len];
        bytes[..len.min(FILLED)].fill(FILLER);
        bytes[tail_of(len)..].fill(FILLER);
        buffer
    }

    /// A message, `len` bytes of the content that starts at `base`.
    pub fn with(content: &Content, base: u64, len: usize) -> Buffer {
        let mut buffer = Buffer::guarded(len);
        content.copy(base, &mut buffer.block[GUARD..GUARD + len]);
        buffer
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of it is filled, not only its ends.
    pub fn fill_all(&mut self) {
        self.block[GUARD..GUARD + self.len].fill(FILLER);
    }

    /// Its owner puts the content that starts at `base` into a range.
    pub fn fill_with(&mut self, content: &Content, base: u64, (from, to): (usize, usize)) {
        content.copy(base, &mut self.block[GUARD + from..GUARD + to]);
    }

    /// The bytes in `from..to`, if that is inside.
    pub fn get(&self, from: usize, to: usize) -> Option<&[u8]> {
        let fits = from <= to && to <= self.len;
        fits.then(|| &self.block[GUARD + from..GUARD + to])
    }

    /// The pieces that an operation names, cut at `cuts`.
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

    /// Offset of an address.
    pub fn offset_of(&self, address: *mut u8) -> u64 {
        (address as u64).wrapping_sub(self.block.as_ptr() as u64 + GUARD as u64)
    }

    /// Addresses of its first byte and behind its last.
    pub fn range(&self) -> (usize, usize) {
        let from = self.block.as_ptr() as usize + GUARD;
        (from, from + self.len)
    }

    /// The bytes at an address, if `len` bytes from there are in it.
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

    /// The byte that a reader of the memory stores.
    pub(crate) const KEPT: u8 = 0x3d;

    /// A reader stores something in a range.
    pub(crate) fn keep(&mut self, (from, to): (usize, usize)) {
        self.block[GUARD + from..GUARD + to].fill(Buffer::KEPT);
    }

    /// The engine is done with this range: the application uses it for something else.
    pub fn poison(&mut self, from: usize, to: usize) {
        let (from, to) = (from.min(self.len), to.min(self.len));
        if from < to {
            for (from, to) in marks(from, to) {
                self.block[GUARD + from..GUARD + to].fill(POISON);
            }
            self.poisoned.push((from, to));
        }
    }

    /// Checks the bytes that nobody may have changed; `used`: bytes at the start that were rightly
    /// written.
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

    /// Nothing was written in `from..to` of a buffer that was filled.
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
    /// The block is kept for another buffer.
    fn drop(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let (class, _) = size_class(self.block.len());
        let block = std::mem::take(&mut self.block);
        let mut ranges = std::mem::take(&mut self.poisoned);
        ranges.clear();
        // No longer there at the end of a thread.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().keep(class, block, ranges));
    }
}

/// Pieces of memory that an operation names: few, so that no memory is taken for them.
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
    /// None.
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

/// Where the filled end of a buffer begins.
fn tail_of(len: usize) -> usize {
    len.saturating_sub(FILLED_AT_END)
}

/// Where poison is in a range that has it: its start, its end, lines in between.
fn marks(from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let start = to.min(from + POISONED);
    let end = start.max(to.saturating_sub(POISONED));
    let lines = (start..end)
        .step_by(STRIDE)
        .map(move |at| (at, end.min(at + LINE)));
    [(from, start), (end, to)].into_iter().chain(lines)
}

/// True if all bytes have a value: the first has, and each other is like the one before. (The C
/// library compares with wider registers than a loop here would.)
fn all_are(bytes: &[u8], value: u8) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == value && *rest == bytes[..rest.len()],
    }
}

/// Number and size of the blocks that hold so many bytes.
fn size_class(bytes: usize) -> (usize, usize) {
    let whole = bytes.next_power_of_two().max(LEAST);
    let (half, steps) = (whole / 2, if whole <= FINE { 1 } else { 4 });
    let step = half / steps;
    let taken = bytes.saturating_sub(half).div_ceil(step).max(1);
    let taken = if steps == 1 { 1 } else { taken };
    (4 * whole.ilog2() as usize + taken - 1, half + taken * step)
}

/// Buffers of operations that are over, watched for a while.
#[derive(Debug, Default)]
pub struct Graveyard {
    buffers: std::collections::VecDeque<(u32, Buffer)>,
    bytes: usize,
}

impl Graveyard {
    /// An operation's buffer comes in; an older one's may be found damaged.
    pub fn bury(&mut self, handle: u32, buffer: Buffer) -> Result<(), (u32, &'static str)> {
        self.bytes += buffer.block.len();
        self.buffers.push_back((handle, buffer));
        if self.bytes > GRAVEYARD_BYTES {
            return self.look_at_oldest();
        }
        Ok(())
    }

    /// True if the address is in one of them.
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

    /// Looks at all that are left.
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
        /// Message.
        uid: u32,
        /// Its entry means that it was delivered; else that the buffer is free.
        delivery: bool,
        /// The buffer is the engine's until the entry.
        held: bool,
        /// An entry is due.
        entry: bool,
    },
    /// A receive.
    Recv(Box<RecvOp>),
    /// A remote read: its pieces.
    Read(Vec<ReadOp>),
    /// A remote write.
    Put {
        /// Whose memory.
        dst: u32,
        /// The message of its first piece, or `NONE` if it has no bytes.
        uid: u32,
        /// Messages from there on: one for each piece.
        pieces: u32,
        /// Its success has an entry.
        entry: bool,
        /// It follows when all bytes are there.
        data: Option<u64>,
    },
    /// An atomic operation.
    Atomic(Box<AtomicOp>),
    /// Memory that a peer may write or read.
    Window,
    /// A look for a message, which this is, to be claimed or not.
    Peek {
        /// The message that it must find.
        want: Option<u32>,
        /// It is set aside.
        claim: bool,
    },
    /// A claimed message is thrown away.
    Discard,
}

/// A receive.
#[derive(Debug, Default)]
pub struct RecvOp {
    /// Endpoint it names.
    pub source: Option<u32>,
    /// Bits of the tag that it ignores.
    pub ignore: u64,
    /// True if it takes many messages.
    pub multi: bool,
    /// Messages that it must get, and whether each completion came.
    pub matches: Vec<(Match, bool)>,
    /// Taken back.
    pub cancelled: bool,
    /// A message into it (of many) was lost with its sender.
    pub bereft: bool,
}

/// A remote read.
#[derive(Debug, Default)]
pub struct ReadOp {
    /// Serving endpoint.
    pub server: u32,
    /// Where the right content starts.
    pub base: u64,
    /// The bytes of the operation that it brings.
    pub from: u64,
    /// See `from`.
    pub len: u64,
    /// Key and address that it names.
    pub key: u64,
    /// See `key`.
    pub addr: u64,
    /// The window that it means, or is let into, if any.
    pub window: u32,
    /// Where it is there.
    pub at: u64,
    /// Its server was asked for the memory.
    pub asked: bool,
    /// There was none: it must be refused.
    pub bad: bool,
    /// It may be refused: the memory was closed meanwhile.
    pub closed: bool,
    /// Somebody writes where it reads.
    pub loose: bool,
    /// It came to another window than it was meant for.
    pub stray: bool,
}

/// An operation. Its context is its number plus one.
#[derive(Debug)]
pub struct Op {
    /// Its kind.
    pub kind: OpKind,
    /// Its memory.
    pub buffer: Buffer,
    /// World time of its post.
    pub posted_ns: u64,
    /// World time of its end.
    pub done_ns: Option<u64>,
    /// Counts for the application's round.
    pub in_round: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any byte at the ends of what was given back, and any packet's length in between.
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
    fn blocks_hold_what_they_are_taken_for_and_go_back_to_their_own_size() {
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
