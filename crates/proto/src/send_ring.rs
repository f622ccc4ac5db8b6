//! Packets of one path that wait for an ack, in number order, with the frames they carried.

use crate::slab::Key;
use alloc::collections::VecDeque;

/// Packets that a ring has room for without counting as roomy: what a queue has at first.
const FEW: usize = 4;

/// What a sent packet carried, enough to send it again in another packet on any rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameRef {
    /// Bytes of a message (offset 0 of an eager one carries the matching head).
    Data { xfer: Key, offset: u64, len: u32 },
    /// Bytes of a message that were written, on the path of index `at`.
    Written {
        at: u8,
        xfer: Key,
        offset: u64,
        len: u32,
    },
    /// The rendezvous request of a message.
    Rts(Key),
    /// The latest grant of an inbound message.
    Grant(Key),
    /// The latest credit.
    Credit,
    /// A grant of nothing, with these flags: the receiver wants no byte of the message.
    EmptyGrant { number: u32, flags: u8 },
    /// Our HELLO.
    Hello,
    /// A remote read request.
    Read(Key),
    /// Refusal of a peer's read.
    ReadFail(u32),
    /// The peer's packets on this path arrive damaged.
    Corrupt(u8),
    /// Our BYE.
    Bye,
    /// A probe of the path itself; never sent again. `padded`: it measured the path's MTU.
    Ping { padded: bool },
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
    frames_at: u64,
    frames: u16,
    pub state: SentState,
}

/// The ring.
#[derive(Debug, Default)]
pub struct SendRing {
    packets: VecDeque<Sent>,
    frames: VecDeque<FrameRef>,
    /// Number of `packets[0]`.
    first: u64,
    /// Running index of `frames[0]`.
    frames_first: u64,
    waiting: u32,
    in_flight: u64,
    /// Packets given up so far.
    lost: u64,
    /// Number after the latest packet that wants no ack.
    unasked: u64,
}

impl SendRing {
    /// Number that the next packet gets.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
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
        self.packets.capacity() * size_of::<Sent>() + self.frames.capacity() * size_of::<FrameRef>()
    }

    /// Whether it has room for more than a few packets.
    pub fn is_roomy(&self) -> bool {
        self.packets.capacity() > FEW || self.frames.capacity() > 2 * FEW
    }

    /// Gives back the room that it does not need.
    pub fn shrink(&mut self) {
        self.packets.shrink_to_fit();
        self.frames.shrink_to_fit();
    }

    /// Records a packet just built; `frames` empty: it wants no ack.
    pub fn push(&mut self, frames: &[FrameRef], bytes: usize, delivered: Delivered, now_ns: u64) {
        let frames_at = self.frames_first + self.frames.len() as u64;
        self.frames.extend(frames);
        let state = if frames.is_empty() {
            SentState::Done
        } else {
            SentState::Waiting
        };
        self.packets.push_back(Sent {
            sent_ns: now_ns,
            delivered,
            bytes: bytes as u32,
            frames_at,
            frames: frames.len() as u16,
            state,
        });
        if state == SentState::Waiting {
            self.waiting += 1;
            self.in_flight += bytes as u64;
        } else {
            self.unasked = self.next_number();
        }
        self.retire();
    }

    /// A packet still in the ring.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Sent> {
        self.packets.get(number.checked_sub(self.first)? as usize)
    }

    /// The frames of a packet still in the ring.
    pub fn frames_of(&self, sent: &Sent) -> impl Iterator<Item = FrameRef> + '_ {
        let at = (sent.frames_at - self.frames_first) as usize;
        self.frames.range(at..at + sent.frames as usize).copied()
    }

    /// Moves a waiting packet to another state; whether it was waiting.
    pub fn settle(&mut self, number: u64, state: SentState) -> bool {
        let Some(at) = number.checked_sub(self.first) else {
            return false;
        };
        let Some(sent) = self.packets.get_mut(at as usize) else {
            return false;
        };
        let was = sent.state;
        if was == SentState::Done || was == state {
            return false;
        }
        sent.state = state;
        if was == SentState::Waiting {
            self.waiting -= 1;
            self.in_flight -= sent.bytes as u64;
            self.lost += (state == SentState::Lost) as u64;
        }
        was == SentState::Waiting
    }

    /// Oldest packet that waits for an ack.
    pub fn oldest_waiting(&self) -> Option<(u64, &Sent)> {
        if self.waiting == 0 {
            return None;
        }
        let at = self
            .packets
            .iter()
            .position(|s| s.state == SentState::Waiting)?;
        Some((self.first + at as u64, &self.packets[at]))
    }

    /// Packets given up so far, whether or not they were acknowledged later.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number after the latest packet that wants no ack.
    pub fn unasked(&self) -> u64 {
        self.unasked
    }

    /// First number in the ring.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Drops settled packets from the front.
    pub fn retire(&mut self) {
        while let Some(sent) = self.packets.front() {
            if sent.state == SentState::Waiting {
                break;
            }
            for _ in 0..sent.frames {
                self.frames.pop_front();
            }
            self.frames_first += sent.frames as u64;
            self.first += 1;
            self.packets.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A packet in the plainest form.
    #[derive(Clone, Debug)]
    struct Plain {
        frames: Vec<FrameRef>,
        bytes: u64,
        state: SentState,
    }

    /// What a step does.
    #[derive(Clone, Debug)]
    enum Step {
        Push(u16, usize),
        Settle(prop::sample::Index, bool),
        Retire,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u16..5, 0usize..2_000).prop_map(|(frames, bytes)| Step::Push(frames, bytes)),
            4 => (any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(at, done)| Step::Settle(at, done)),
            1 => Just(Step::Retire),
        ]
    }

    /// Everything that can be asked, held against all packets there ever were.
    fn agree(ring: &SendRing, plain: &[Plain]) {
        let waits = |p: &&Plain| p.state == SentState::Waiting;
        let waiting: Vec<&Plain> = plain.iter().filter(waits).collect();
        assert_eq!(ring.next_number(), plain.len() as u64);
        assert_eq!(ring.waiting() as usize, waiting.len());
        assert_eq!(ring.in_flight(), waiting.iter().map(|p| p.bytes).sum());
        let oldest = plain.iter().position(|p| p.state == SentState::Waiting);
        let found = ring.oldest_waiting().map(|(number, _)| number as usize);
        assert_eq!(found, oldest);
        for (number, packet) in plain.iter().enumerate() {
            let Some(sent) = ring.get(number as u64) else {
                assert_ne!(packet.state, SentState::Waiting, "{number} was forgotten");
                assert!((number as u64) < ring.first());
                continue;
            };
            let frames: Vec<FrameRef> = ring.frames_of(sent).collect();
            assert_eq!((sent.state, &frames), (packet.state, &packet.frames));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_all_packets(
            steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 120 }))
        {
            let (mut ring, mut plain) = (SendRing::default(), Vec::<Plain>::new());
            for step in steps {
                match step {
                    Step::Push(count, bytes) => {
                        let number = plain.len() as u32;
                        let frame = |i| FrameRef::EmptyGrant {
                            number,
                            flags: i as u8,
                        };
                        let frames: Vec<FrameRef> = (0..count).map(frame).collect();
                        ring.push(&frames, bytes, Delivered::default(), 0);
                        let state = if count == 0 { SentState::Done } else { SentState::Waiting };
                        plain.push(Plain { frames, bytes: bytes as u64, state });
                    }
                    Step::Settle(at, done) => {
                        // Numbers that were never given are answered too.
                        let number = at.index(plain.len() + 2);
                        let to = if done { SentState::Done } else { SentState::Lost };
                        let was = plain.get(number).map(|p| p.state);
                        let settled = ring.settle(number as u64, to);
                        prop_assert_eq!(settled, was == Some(SentState::Waiting));
                        // One that has left the ring is not told apart any more.
                        let there = ring.get(number as u64).is_some();
                        if there && was != Some(SentState::Done) {
                            plain[number].state = to;
                        }
                    }
                    Step::Retire => ring.retire(),
                }
                agree(&ring, &plain);
            }
        }
    }

    #[test]
    fn settles_in_any_order_and_retires_from_the_front() {
        let mut ring = SendRing::default();
        for i in 0..5u64 {
            let n = if i == 3 { 0 } else { 2 };
            let frames: Vec<FrameRef> = (0..n).map(|_| FrameRef::ReadFail(i as u32)).collect();
            ring.push(&frames, 100, Delivered::default(), i);
        }
        assert_eq!(
            (ring.waiting(), ring.in_flight(), ring.next_number()),
            (4, 400, 5)
        );
        assert!(ring.settle(1, SentState::Done));
        assert!(!ring.settle(1, SentState::Lost));
        assert!(ring.settle(0, SentState::Lost));
        ring.retire();
        assert_eq!(ring.oldest_waiting().map(|(n, _)| n), Some(2));
        let sent = *ring.get(4).unwrap();
        let frames: Vec<FrameRef> = ring.frames_of(&sent).collect();
        assert_eq!(frames, [FrameRef::ReadFail(4), FrameRef::ReadFail(4)]);
        assert!(ring.get(0).is_none());
        assert!(ring.settle(2, SentState::Done) && ring.settle(4, SentState::Done));
        ring.retire();
        assert_eq!((ring.next_number(), ring.in_flight()), (5, 0));
    }
}
