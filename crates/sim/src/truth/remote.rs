//! Remote operations in the truth: RPCs between engines, atomic operations, and their cells.

use crate::base::rng::Rng;
use crate::truth::elements;
use marline_engine::{flag, Counter, Engine, EpId, System};
use std::sync::Arc;

/// Longest short write: with key, address and data an RPC of 4,096 bytes.
pub(crate) const SHORT_MAX: u64 = 4_072;

/// The RPC that a message carries.
#[derive(Clone, Debug)]
pub struct Call {
    /// The RPC's bytes.
    pub bytes: Vec<u8>,
    /// The RPC's purpose.
    pub ask: Ask,
    /// True if the RPC was executed (for an answer: received).
    pub done: bool,
    /// True if the RPC's answer was received.
    pub answered: bool,
    /// Messages of the operations that follow the RPC's own operation in the RPC, in order.
    pub joined: Vec<u32>,
    /// Message of the RPC that carries this operation, and the operation's place there.
    pub within: Option<(u32, u16)>,
    /// The message of the RPC's answer.
    pub answer: Option<u32>,
    /// The next RPC is a part of the same operation.
    pub more: bool,
    /// The address after the RPC's last operation.
    end: u64,
}

/// The purpose of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A write.
    Put,
    /// A part of an atomic operation of the RPC's sender: operation, part.
    Atomic(u32, usize),
    /// The answer to this message.
    Answer(u32),
    /// A read of zero bytes by the RPC's sender.
    Read(u32),
    /// The report that an operation in parts has ended.
    Over,
}

impl Call {
    /// An RPC in flight.
    pub fn new(ask: Ask, bytes: Vec<u8>) -> Box<Call> {
        Box::new(Call {
            bytes,
            ask,
            done: false,
            answered: false,
            joined: Vec::new(),
            within: None,
            answer: None,
            more: false,
            end: 0,
        })
    }

    /// Adds the operation of another RPC, of message `uid`, behind this RPC's operations; returns
    /// its place.
    pub(crate) fn join(&mut self, uid: u32, (other, more): (&[u8], bool)) -> u16 {
        let (addr, payload) = place_of(other);
        let length = |payload: &[u8], more| 2 * payload.len() as u64 + u64::from(more);
        if self.joined.is_empty() {
            let (addr, payload) = place_of(&self.bytes);
            let first = length(payload, self.more);
            self.end = addr.wrapping_add(payload.len() as u64);
            self.bytes[16..HEAD].copy_from_slice(&first.to_le_bytes());
        }
        let gap = addr.wrapping_sub(self.end) as i64;
        let sign = if gap < 0 { u64::MAX } else { 0 };
        push_number(&mut self.bytes, (gap as u64).wrapping_mul(2) ^ sign);
        push_number(&mut self.bytes, length(payload, more));
        self.bytes.extend_from_slice(payload);
        self.end = addr.wrapping_add(payload.len() as u64);
        self.joined.push(uid);
        self.joined.len() as u16
    }

    /// True if the RPC has the bytes `payload` at `offset`.
    pub fn has(&self, offset: u64, payload: &[u8]) -> bool {
        let from = offset as usize;
        self.bytes.get(from..from + payload.len()) == Some(payload)
    }
}

/// Bytes before the payload of a call: key, address, data.
const HEAD: usize = 24;

/// The address that an RPC names, and its payload.
fn place_of(bytes: &[u8]) -> (u64, &[u8]) {
    let addr = bytes[8..16].iter().rev();
    let addr = addr.fold(0, |addr, &byte| addr << 8 | u64::from(byte));
    (addr, &bytes[HEAD..])
}

/// Appends a number in groups of seven bits, the lowest first; all but the last have their top bit
/// set.
fn push_number(bytes: &mut Vec<u8>, number: u64) {
    let rest = number >> 7;
    bytes.push(number as u8 & 127 | if rest > 0 { 128 } else { 0 });
    if rest > 0 {
        push_number(bytes, rest);
    }
}

/// The bytes that precede a request's payload.
pub(crate) fn head_of(key: u64, addr: u64, data: Option<u64>) -> Vec<u8> {
    let words = [key, addr, data.unwrap_or(0)];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An atomic operation of an endpoint.
#[derive(Debug, Default)]
pub struct AtomicOp {
    /// The owner of the cells.
    pub dst: u32,
    /// The operation itself.
    pub what: Atomic,
    /// The RPCs of the operation, each with a part of it.
    pub parts: Vec<Part>,
    /// True if success writes an entry.
    pub entry: bool,
    /// The result, once ended.
    pub over: Option<bool>,
}

/// A part of an atomic operation.
#[derive(Debug)]
pub struct Part {
    /// The operation's message; `NONE` for the endpoint's own cells.
    pub uid: u32,
    /// The elements of this part.
    pub what: Atomic,
    /// The old bytes (inner `None`: refused), once the operation is done.
    pub old: Option<Option<Vec<u8>>>,
}

impl AtomicOp {
    /// Flags of its completion entry.
    pub fn flags(&self) -> u64 {
        let does = if self.what.fetches {
            flag::READ
        } else {
            flag::WRITE
        };
        flag::ATOMIC | does
    }
}

/// An atomic operation.
#[derive(Clone, Debug, Default)]
pub struct Atomic {
    /// Key in the request.
    pub key: u64,
    /// Address in the request.
    pub addr: u64,
    /// libfabric's number of the data type.
    pub datatype: u8,
    /// Bytes per element.
    pub size: usize,
    /// libfabric's number of the operation.
    pub op: u8,
    /// Number of elements.
    pub count: usize,
    /// Number of elements in the first of two segments; 0 for a single segment.
    pub cut: usize,
    /// True if the operation fetches the old values.
    pub fetches: bool,
    /// An operand per element.
    pub operands: Vec<u8>,
    /// A compare value per element, for operations that compare.
    pub compare: Vec<u8>,
}

impl Atomic {
    /// The bytes of the operation's RPC.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = head_of(self.key, self.addr, None);
        bytes.extend([&self.operands[..], &self.compare].concat());
        bytes
    }

    /// The RPCs that the operation needs, all with message `uid` at first.
    pub fn parts(&self, uid: u32) -> Vec<Part> {
        let operands = 1 + !self.compare.is_empty() as usize;
        let most = SHORT_MAX as usize / self.size / operands;
        let of = |bytes: &[u8], first: usize, count: usize| {
            let range = first * self.size..(first + count) * self.size;
            bytes.get(range).unwrap_or_default().to_vec()
        };
        let part = |first: usize, end: usize| {
            let count = most.min(end - first);
            let what = Atomic {
                addr: self.addr_of(first),
                count,
                cut: 0,
                operands: of(&self.operands, first, count),
                compare: of(&self.compare, first, count),
                ..*self
            };
            let old = None;
            Part { uid, what, old }
        };
        let pieces = [(0, self.cut), (self.cut, self.count)];
        let parts = |(first, end)| (first..end).step_by(most).map(move |at| part(at, end));
        pieces.into_iter().flat_map(parts).collect()
    }

    fn addr_of(&self, element: usize) -> u64 {
        self.addr.wrapping_add((element * self.size) as u64)
    }

    /// The segments of remote memory: addresses, elements and keys.
    pub fn places(&self) -> Vec<(u64, usize, u64)> {
        let mut places = vec![(self.addr, self.cut, self.key)];
        if self.cut == 0 {
            places.clear();
        }
        places.push((self.addr_of(self.cut), self.count - self.cut, self.key));
        places
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.count * self.size
    }

    /// Applies the operation to cells and returns the old bytes.
    pub fn apply(&self, cells: &mut [u8]) -> Vec<u8> {
        let (old, size) = (cells.to_vec(), self.size);
        for (i, cell) in cells.chunks_exact_mut(size).enumerate() {
            let of = |all: &[u8]| {
                all.get(i * size..(i + 1) * size)
                    .unwrap_or_default()
                    .to_vec()
            };
            let (operand, compare) = (of(&self.operands), of(&self.compare));
            let new = elements::after((self.datatype, self.op), cell, &operand, &compare);
            cell.copy_from_slice(&new);
        }
        old
    }
}

/// The cells of a process.
#[derive(Debug, Default)]
pub struct Cells {
    /// The open cells.
    pub open: Option<Open>,
    /// Number of keys made so far.
    pub keys_made: u64,
    /// True if cells were changed since the last check.
    pub touched: bool,
    /// Operations of peers that wait for old values.
    pub fetching: u32,
}

/// Open cells.
#[derive(Debug)]
pub struct Open {
    /// The operation that owns the cells' memory.
    pub handle: u32,
    /// The key of the cells.
    pub key: u64,
    /// True if peers may read the cells.
    pub readable: bool,
    /// See `readable`.
    pub writable: bool,
    /// The expected bytes.
    pub bytes: Vec<u8>,
}

/// Counted operations of peers: reads (including fetching atomics), and writes.
#[derive(Debug, Default)]
pub struct Counted {
    pub(crate) counters: [Arc<Counter>; 2],
    /// Posted operations.
    pub(crate) posted: [u64; 2],
    /// Successful operations.
    pub(crate) done: [u64; 2],
}

impl Counted {
    /// Binds counters to an endpoint.
    pub(crate) fn bind<S: System>(engine: &Engine<S>, ep: EpId) -> Counted {
        let counted = Counted::default();
        let [reads, writes] = counted.counters.clone();
        engine.ep_bind_counter(ep, marline_engine::Counted::RemoteReads, reads);
        engine.ep_bind_counter(ep, marline_engine::Counted::RemoteWrites, writes);
        counted
    }
}

/// Operations of peers on one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admissions {
    /// Counters of the region: reads, writes.
    pub(crate) counters: [Arc<Counter>; 2],
    /// Admitted parts of counted operations.
    pub(crate) admitted: [u64; 2],
    /// Messages of admitted writes without parts.
    pub(crate) alone: Vec<u32>,
}

/// The count of an admitted user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admission {
    /// A read, or a part of a read.
    Read,
    /// A part of a write.
    Part,
    /// A whole write: this message.
    Write(u32),
    /// The end of an operation.
    Nothing,
}

impl Admissions {
    /// Adds an admission.
    pub(crate) fn add(&mut self, what: Admission) {
        match what {
            Admission::Read => self.admitted[0] += 1,
            Admission::Part => self.admitted[1] += 1,
            Admission::Write(uid) => {
                self.admitted[1] += 1;
                self.alone.push(uid);
            }
            Admission::Nothing => {}
        }
    }
}

/// The error in an invalid request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The key does not exist or is closed.
    Key,
    /// The memory is read-only for peers.
    ReadOnly,
    /// The range ends one byte after the region.
    Beyond,
    /// The range begins before the region, or its end overflows.
    Before,
}

impl Wrong {
    /// Draws an error for a write.
    pub(crate) fn draw(rng: &mut Rng) -> Wrong {
        rng.pick(&[Wrong::Key, Wrong::ReadOnly, Wrong::Beyond, Wrong::Before])
    }

    /// Draws an error for a read.
    pub(crate) fn draw_read(rng: &mut Rng) -> Wrong {
        rng.pick(&[Wrong::Key, Wrong::Beyond, Wrong::Before])
    }
}

/// Stands for no message, or no window.
pub(crate) const NONE: u32 = u32::MAX;

/// Key of the region for remote reads: all of the content.
pub const KEY: u64 = 7;

/// The target of a request: key and address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The intended window, or `NONE`.
    pub window: u32,
    /// Key.
    pub key: u64,
    /// Offset or virtual address.
    pub addr: u64,
}

/// A segment of remote memory, for bytes `from ..` of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub spot: Spot,
    pub from: u64,
    pub len: u64,
}
