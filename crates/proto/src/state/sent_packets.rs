//! Sent packets of one path that wait for an ack, in number order, with their frames.

use crate::base::slab::Key;
use alloc::collections::VecDeque;

/// Runs that a ring may have room for without counting as oversized: the initial capacity.
const FEW: usize = 4;
/// Most packets of one run: the bits of a mask.
const RUN_MAX: usize = u32::BITS as usize;

/// A frame of a sent packet: enough to retransmit it in another packet on any rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameRef {
    /// Bytes of a message (offset 0 of an eager message carries the matching head).
    Data { xfer: Key, offset: u64, len: u32 },
    /// Bytes of a message that were written past packets, on the path with index `at`.
    Written {
        at: u16,
        xfer: Key,
        offset: u64,
        len: u32,
    },
    /// The rendezvous request of a message.
    Rts(Key),
    /// The ADVERTISEMENT of a segment of a message's memory, after its request.
    Advertisement { xfer: Key, segment: u8 },
    /// The latest grant of an inbound message.
    Grant(Key),
    /// The latest credit.
    Credit,
    /// A grant of no bytes, with these flags: the receiver wants no byte of the message.
    EmptyGrant { number: u32, flags: u8 },
    /// Our HELLO with this revision of our rails.
    Hello(u32),
    /// A remote read request.
    Read(Key),
    /// Refusal of a peer's read.
    ReadFail(u32),
    /// CORRUPT: the peer's packets on this path arrive corrupted.
    Corrupt(u16),
    /// Our BYE.
    Bye,
    /// The response to a challenge with this data.
    PathResponse(u64),
    /// A probe of the path itself, never retransmitted. `padded`: a size probe (path MTU).
    Ping { padded: bool },
}

impl FrameRef {
    /// Bytes of a message in the packet.
    #[inline]
    pub fn bytes_of(&self) -> Option<(Key, u64, u32)> {
        match *self {
            FrameRef::Data { xfer, offset, len } => Some((xfer, offset, len)),
            _ => None,
        }
    }

    /// True for bytes written past the packet.
    pub fn is_written(&self) -> bool {
        matches!(self, FrameRef::Written { .. })
    }

    /// True for a probe of the path.
    pub fn is_ping(&self) -> bool {
        matches!(self, FrameRef::Ping { .. })
    }
}

/// State of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentState {
    /// Waits for an ack.
    Waiting,
    /// Acknowledged, or without a request for an ack.
    Done,
    /// Declared lost; its frames were requeued.
    Lost,
}

/// A path's delivery counters when a packet left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes acknowledged in all.
    pub bytes: u64,
    /// Time of the last ack, or when the path began to carry packets again.
    pub at_ns: u64,
}

/// A sent packet.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub sent_ns: u64,
    pub delivered: Delivered,
    pub bytes: u32,
    pub state: SentState,
    /// Frames of the packet's run, and its index in the run.
    frames_at: u32,
    frames: u16,
    at: u8,
}

/// The packets of one run that an ack settled.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Numbers from the requested one to the end of its run: the result covers all of them.
    pub covered: u32,
    /// Covered packets that were not acknowledged before.
    pub packets: u32,
    /// The newest newly acknowledged packet, in its state before the ack.
    pub newest: Option<(u64, Sent)>,
}

/// A run: packets that left together and are stored and settled as one entry. They differ in number
/// only and, if there are several, in the part of one message that each carries alone.
#[derive(Clone, Copy, Debug)]
struct Entry {
    sent_ns: u64,
    delivered: Delivered,
    /// Bytes of each packet.
    bytes: u32,
    /// Number of the first packet (low half: a ring is much shorter).
    number: u32,
    /// Running index of the first packet's frames (low half). In a run of several packets, each has
    /// one frame, which continues the frame before.
    frames_at: u32,
    frames: u16,
    packets: u8,
    /// Bit n: packet n waits for an ack.
    waiting: u32,
    /// Bit n: packet n was declared lost.
    lost: u32,
}

impl Entry {
    fn packet(&self, at: u32) -> Sent {
        let state = match (self.waiting >> at & 1, self.lost >> at & 1) {
            (1, _) => SentState::Waiting,
            (_, 1) => SentState::Lost,
            _ => SentState::Done,
        };
        Sent {
            sent_ns: self.sent_ns,
            delivered: self.delivered,
            bytes: self.bytes,
            state,
            frames_at: self.frames_at,
            frames: self.frames,
            at: at as u8,
        }
    }
}

impl FrameRef {
    /// The joined frame of `packets` packets of a run from index `at` on, given the first packet's
    /// frame.
    fn part(self, at: u32, packets: u32) -> FrameRef {
        match self {
            FrameRef::Data { xfer, offset, len } => FrameRef::Data {
                xfer,
                offset: offset + at as u64 * len as u64,
                len: len * packets,
            },
            other => other, // runs of several packets have only Data
        }
    }
}

/// The sent packets of one path.
#[derive(Debug, Default)]
pub struct SendRing {
    runs: VecDeque<Entry>,
    frames: VecDeque<FrameRef>,
    /// Number of the first packet of `runs[0]`.
    base: u64,
    /// Number of the first packet in the ring, and the number after the last one.
    first: u64,
    next: u64,
    /// Running index of `frames[0]` (low half).
    frames_first: u32,
    waiting: u32,
    in_flight: u64,
}

impl SendRing {
    /// Number of the next packet.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Packets that wait for an ack.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Bytes that wait for an ack.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes of heap in use.
    pub fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Entry>() + self.frames.capacity() * size_of::<FrameRef>()
    }

    /// True if the ring has room for more than a few runs.
    pub fn is_oversized(&self) -> bool {
        self.runs.capacity() > FEW || self.frames.capacity() > 2 * FEW
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.runs.shrink_to_fit();
        self.frames.shrink_to_fit();
    }

    /// Records a packet that was just built; a packet without `frames` does not wait for an ack.
    #[inline]
    pub fn push(&mut self, frames: &[FrameRef], bytes: usize, delivered: Delivered, now_ns: u64) {
        let count = frames.len() as u16;
        self.push_run(1, count, bytes, delivered, now_ns);
        self.frames.extend(frames);
        self.retire();
    }

    /// Records `packets` packets that were just built, of `bytes` bytes each, with consecutive
    /// fragments of a message from `offset` on, of `len` bytes each.
    pub fn push_fragments(
        &mut self,
        (xfer, offset, len): (Key, u64, u32),
        packets: usize,
        bytes: usize,
        (delivered, now_ns): (Delivered, u64),
    ) {
        let mut at = 0;
        while at < packets {
            let count = (packets - at).min(RUN_MAX);
            self.push_run(count, 1, bytes, delivered, now_ns);
            let offset = offset + at as u64 * len as u64;
            self.frames.push_back(FrameRef::Data { xfer, offset, len });
            at += count;
        }
        self.retire();
    }

    /// Adds a run of up to [`RUN_MAX`] packets, whose `frames` the caller adds.
    #[inline]
    fn push_run(
        &mut self,
        packets: usize,
        frames: u16,
        bytes: usize,
        delivered: Delivered,
        now_ns: u64,
    ) {
        let waiting = match frames {
            0 => 0,
            _ => u32::MAX >> (u32::BITS - packets as u32),
        };
        self.runs.push_back(Entry {
            sent_ns: now_ns,
            delivered,
            bytes: bytes as u32,
            number: self.next as u32,
            frames_at: self.frames_first.wrapping_add(self.frames.len() as u32),
            frames,
            packets: packets as u8,
            waiting,
            lost: 0,
        });
        self.next += packets as u64;
        self.waiting += waiting.count_ones();
        self.in_flight += waiting.count_ones() as u64 * bytes as u64;
    }

    /// Index of the run of a packet in the ring, and the packet's index in it.
    #[inline]
    fn find(&self, number: u64) -> Option<(usize, u32)> {
        if number < self.first || number >= self.next {
            return None;
        }
        let offset = (number - self.base) as u32;
        let singles = self.runs.len() as u64 == self.next - self.base;
        let at = match singles {
            true => offset as usize,
            false => self.run_at(offset),
        };
        Some((at, (number as u32).wrapping_sub(self.runs[at].number)))
    }

    /// Index of the run of packet `base` + `offset`. Acks come in order, so the run is mostly near
    /// the front: the search starts there, in growing steps.
    fn run_at(&self, offset: u32) -> usize {
        let base = self.base as u32;
        let until = |run: &Entry| run.number.wrapping_sub(base) <= offset;
        let (mut at, mut step) = (0, 1);
        while self.runs.get(at + step).is_some_and(until) {
            at += step;
            step *= 2;
        }
        let mut end = self.runs.len().min(at + step);
        while at + 1 < end {
            let middle = at + (end - at) / 2;
            match until(&self.runs[middle]) {
                true => at = middle,
                false => end = middle,
            }
        }
        at
    }

    /// A packet that is still in the ring.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Sent> {
        let (run, at) = self.find(number)?;
        Some(self.runs[run].packet(at))
    }

    /// The frames of a packet that is still in the ring.
    pub fn frames_of(&self, sent: &Sent) -> impl Iterator<Item = FrameRef> + '_ {
        let from = sent.frames_at.wrapping_sub(self.frames_first) as usize;
        let at = sent.at as u32;
        let frames = self.frames.range(from..from + sent.frames as usize);
        frames.map(move |frame| frame.part(at, 1))
    }

    /// Settles the packets that an ack names in the run of packet `number`: bit n of `named` is
    /// packet `number` + n. `each` gets their frames.
    pub fn acknowledge(
        &mut self,
        number: u64,
        named: u64,
        mut each: impl FnMut(FrameRef),
    ) -> Acked {
        let Some((index, at)) = self.find(number) else {
            return Acked {
                covered: 1,
                packets: 0,
                newest: None,
            };
        };
        let run = &mut self.runs[index];
        let named = (named as u32) << at;
        let new = named & (run.waiting | run.lost);
        let waited = new & run.waiting;
        let first = number - at as u64;
        let newest = new.checked_ilog2();
        let newest = newest.map(|at| (first + at as u64, run.packet(at)));
        run.waiting &= !new;
        run.lost &= !new;
        self.waiting -= waited.count_ones();
        self.in_flight -= waited.count_ones() as u64 * run.bytes as u64;
        let acked = Acked {
            covered: run.packets as u32 - at,
            packets: new.count_ones(),
            newest,
        };
        let from = run.frames_at.wrapping_sub(self.frames_first) as usize;
        let range = from..from + run.frames as usize;
        for (at, packets) in stretches(new) {
            for frame in self.frames.range(range.clone()) {
                each(frame.part(at, packets));
            }
        }
        acked
    }

    /// Moves a waiting packet to another state. Returns whether it was waiting.
    pub fn settle(&mut self, number: u64, state: SentState) -> bool {
        let Some((index, at)) = self.find(number) else {
            return false;
        };
        let run = &mut self.runs[index];
        let (bit, was) = (1 << at, run.packet(at).state);
        if was == SentState::Done || was == state {
            return false;
        }
        run.waiting &= !bit;
        run.lost &= !bit;
        run.lost |= bit * (state == SentState::Lost) as u32;
        if was == SentState::Waiting {
            self.waiting -= 1;
            self.in_flight -= run.bytes as u64;
        }
        was == SentState::Waiting
    }

    /// Frames of the packets that wait for an ack, oldest first.
    pub fn waiting_frames(&self) -> impl Iterator<Item = FrameRef> + '_ {
        let sent = (self.first()..self.next_number()).filter_map(|number| self.get(number));
        let waiting = sent.filter(|sent| sent.state == SentState::Waiting);
        waiting.flat_map(|sent| self.frames_of(&sent))
    }

    /// Oldest packet that waits for an ack.
    pub fn oldest_waiting(&self) -> Option<(u64, Sent)> {
        if self.waiting == 0 {
            return None;
        }
        let run = self.runs.iter().find(|run| run.waiting != 0)?;
        let at = run.waiting.trailing_zeros();
        let offset = run.number.wrapping_sub(self.base as u32);
        Some((self.base + (offset + at) as u64, run.packet(at)))
    }

    /// The first number in the ring.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Drops settled packets at the front.
    pub fn retire(&mut self) {
        while let Some(run) = self.runs.front() {
            if run.waiting != 0 {
                self.first = self.base + run.waiting.trailing_zeros() as u64;
                return;
            }
            for _ in 0..run.frames {
                self.frames.pop_front();
            }
            self.frames_first = self.frames_first.wrapping_add(run.frames as u32);
            self.base += run.packets as u64;
            self.runs.pop_front();
        }
        self.first = self.next;
    }
}

/// Runs of set bits: first index and count of each.
fn stretches(mut bits: u32) -> impl Iterator<Item = (u32, u32)> {
    core::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        let count = bits.checked_shr(at)?.trailing_ones();
        bits &= u32::MAX.checked_shl(at + count).unwrap_or(0);
        Some((at, count))
    })
}

#[cfg(test)]
#[path = "sent_packets_test.rs"]
mod tests;
