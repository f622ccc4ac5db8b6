//! Packets of one path that wait for an ack, in number order, with the frames they carried.

use crate::base::slab::Key;
use alloc::collections::VecDeque;

/// Runs that a ring has room for without counting as oversized: what a queue has at first.
const FEW: usize = 4;
/// Most packets that are kept as one: what a mask holds.
const RUN_MAX: usize = u32::BITS as usize;

/// A frame of a sent packet, enough to send it again in another packet on any rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameRef {
    /// Bytes of a message (offset 0 of an eager one carries the matching head).
    Data { xfer: Key, offset: u64, len: u32 },
    /// Bytes of a message that were written, on the path of index `at`.
    Written {
        at: u16,
        xfer: Key,
        offset: u64,
        len: u32,
    },
    /// The rendezvous request of a message.
    Rts(Key),
    /// A segment of a message's memory, behind its request.
    Offer { xfer: Key, segment: u8 },
    /// The latest grant of an inbound message.
    Grant(Key),
    /// The latest credit.
    Credit,
    /// A grant of nothing, with these flags: the receiver wants no byte of the message.
    EmptyGrant { number: u32, flags: u8 },
    /// Our HELLO, with this revision of our rails.
    Hello(u32),
    /// A remote read request.
    Read(Key),
    /// Refusal of a peer's read.
    ReadFail(u32),
    /// The peer's packets on this path arrive damaged.
    Corrupt(u16),
    /// Our BYE.
    Bye,
    /// A probe of the path itself; never sent again. `padded`: it measured the path's MTU.
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

    /// Bytes that were written past the packet.
    pub fn is_written(&self) -> bool {
        matches!(self, FrameRef::Written { .. })
    }

    /// A question whether the path works.
    pub fn is_ping(&self) -> bool {
        matches!(self, FrameRef::Ping { .. })
    }
}

/// State of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentState {
    /// Wants an ack.
    Waiting,
    /// Acknowledged, or never wanted an ack.
    Done,
    /// Declared lost; its frames were queued again.
    Lost,
}

/// Where a path's deliveries stood when a packet left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes acknowledged in all.
    pub bytes: u64,
    /// When the last of them were, or when the path began to carry something again.
    pub at_ns: u64,
}

/// One sent packet.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub sent_ns: u64,
    pub delivered: Delivered,
    pub bytes: u32,
    pub state: SentState,
    /// Its run's frames, and its place in the run.
    frames_at: u32,
    frames: u16,
    at: u8,
}

/// The packets of one run that an ack settled.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Numbers from the one asked about to the end of its run: those that the answer is about.
    pub covered: u32,
    /// Packets that were not acknowledged before.
    pub packets: u32,
    /// The newest of them, as it was.
    pub newest: Option<(u64, Sent)>,
}

/// A run: packets that left together and differ in number only, and, where they are more than one,
/// in the part of one message that each carries alone. What is kept of them is kept, and settled,
/// once.
#[derive(Clone, Copy, Debug)]
struct Entry {
    sent_ns: u64,
    delivered: Delivered,
    /// Bytes of each.
    bytes: u32,
    /// Number of the first (its low half: a ring is much shorter).
    number: u32,
    /// Running index of the frames of the first (low half); more packets have one frame each,
    /// which continues that.
    frames_at: u32,
    frames: u16,
    packets: u8,
    /// Bit n: packet n wants an ack.
    waiting: u32,
    /// Bit n: packet n was given up.
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
    /// The frame of packet `at` of a run, by that of the first one; of `packets` of them.
    fn part(self, at: u32, packets: u32) -> FrameRef {
        match self {
            FrameRef::Data { xfer, offset, len } => FrameRef::Data {
                xfer,
                offset: offset + at as u64 * len as u64,
                len: len * packets,
            },
            other => other, // never of a longer run
        }
    }
}

/// The ring.
#[derive(Debug, Default)]
pub struct SendRing {
    runs: VecDeque<Entry>,
    frames: VecDeque<FrameRef>,
    /// Number of the first packet of `runs[0]`.
    base: u64,
    /// Number of the first packet that is not forgotten, and the one after the last.
    first: u64,
    next: u64,
    /// Running index of `frames[0]` (low half).
    frames_first: u32,
    waiting: u32,
    in_flight: u64,
}

impl SendRing {
    /// Number that the next packet gets.
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

    /// Heap bytes held.
    pub fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Entry>() + self.frames.capacity() * size_of::<FrameRef>()
    }

    /// Returns whether it has room for more than a few runs.
    pub fn is_oversized(&self) -> bool {
        self.runs.capacity() > FEW || self.frames.capacity() > 2 * FEW
    }

    /// Gives back the room that it does not need.
    pub fn shrink(&mut self) {
        self.runs.shrink_to_fit();
        self.frames.shrink_to_fit();
    }

    /// Records a packet just built; `frames` empty: it wants no ack.
    #[inline]
    pub fn push(&mut self, frames: &[FrameRef], bytes: usize, delivered: Delivered, now_ns: u64) {
        let count = frames.len() as u16;
        self.push_run(1, count, bytes, delivered, now_ns);
        self.frames.extend(frames);
        self.retire();
    }

    /// Records `packets` just built, `bytes` long each, that carry the bytes of a message from
    /// `offset`, `len` each.
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

    /// A run of up to [`RUN_MAX`] packets, whose `frames` are still to be added.
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

    /// Index of the run of a packet still in the ring, and the packet's place in it.
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

    /// Index of the run of the packet `offset` after `base`: mostly one of the first, as acks come
    /// in order; so it is searched from there, by steps that grow.
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

    /// A packet still in the ring.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Sent> {
        let (run, at) = self.find(number)?;
        Some(self.runs[run].packet(at))
    }

    /// The frames of a packet still in the ring.
    pub fn frames_of(&self, sent: &Sent) -> impl Iterator<Item = FrameRef> + '_ {
        let from = sent.frames_at.wrapping_sub(self.frames_first) as usize;
        let at = sent.at as u32;
        let frames = self.frames.range(from..from + sent.frames as usize);
        frames.map(move |frame| frame.part(at, 1))
    }

    /// Settles what an ack names of the run that packet `number` is of: for each bit n of `named`
    /// the packet `number` + n. `each` gets what they carried.
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

    /// Moves a waiting packet to another state; whether it was waiting.
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

    /// Frames of the packets that wait for an ack, the oldest first.
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

    /// First number in the ring.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Forgets settled packets at the front.
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

/// Stretches of bits that are set: the first of each, and how many.
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
