//! Retransmission queue: frames of lost packets in order, each once.

use crate::state::sent_packets::FrameRef;
use alloc::collections::{BTreeMap, VecDeque};
use core::mem::{replace, size_of};

/// No path to avoid for a retransmitted frame.
pub const ANYWHERE: u16 = u16::MAX;
/// Why a frame is retransmitted; counted separately per path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Acks showed that the packet was lost.
    Loss,
    /// The retransmission timer expired.
    Pto,
    /// The path was given up.
    Failover,
}

/// A frame to retransmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend {
    pub frame: FrameRef,
    /// Code of the path to avoid, or [`ANYWHERE`].
    pub avoid: u16,
    /// Index of the path on which the frame left before, and the reason to retransmit it.
    pub path: u16,
    pub why: Why,
}

/// The retransmission queue. It holds each frame once: repeated losses must not multiply a frame,
/// as a packet of 64 KB holds a thousand short messages.
#[derive(Debug, Default)]
pub struct Resends {
    queue: VecDeque<Resend>,
    /// Entries removed from the front so far.
    left: u64,
    /// Position of each frame: the number of entries before it, including removed entries.
    places: BTreeMap<FrameRef, u64>,
    /// Entries that avoid a path.
    hedges: usize,
}

impl Resends {
    /// Queues a frame; returns false if it was queued already.
    pub fn push(&mut self, frame: FrameRef, path: usize, why: Why) -> bool {
        let place = self.left + self.queue.len() as u64;
        let new = *self.places.entry(frame).or_insert(place) == place;
        if new {
            self.queue.push_back(Resend {
                frame,
                avoid: ANYWHERE,
                path: path as u16,
                why,
            });
        }
        new
    }

    /// Makes a queued frame avoid the path with this code.
    pub fn hedge(&mut self, frame: FrameRef, code: u16) {
        let at = self.places.get(&frame).map(|place| place - self.left);
        if let Some(entry) = at.and_then(|at| self.queue.get_mut(at as usize)) {
            self.hedges += (code != ANYWHERE) as usize;
            self.hedges -= (replace(&mut entry.avoid, code) != ANYWHERE) as usize;
        }
    }

    /// True if a frame is to avoid a path: a timer's retransmission, which ignores the window.
    pub fn hedged(&self) -> bool {
        self.hedges > 0
    }

    pub fn front(&self) -> Option<&Resend> {
        self.queue.front()
    }

    pub fn pop_front(&mut self) {
        if let Some(entry) = self.queue.pop_front() {
            self.hedges -= (entry.avoid != ANYWHERE) as usize;
            self.drop_position(&entry.frame);
            self.left += 1;
        }
    }

    /// Replaces the first frame by `rest` after a part of it left.
    pub fn cut_front(&mut self, rest: FrameRef) {
        if let Some(front) = self.queue.front_mut() {
            let frame = replace(&mut front.frame, rest);
            self.drop_position(&frame);
            self.places.entry(rest).or_insert(self.left);
        }
    }

    /// Drops the frame's position if it is the front.
    fn drop_position(&mut self, frame: &FrameRef) {
        if self.places.get(frame) == Some(&self.left) {
            self.places.remove(frame);
        }
    }

    pub fn clear(&mut self) {
        *self = Resends::default();
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Bytes of heap in use. (Each tree entry is also in the queue.)
    pub fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Resend>()
            + self.places.len() * size_of::<(FrameRef, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::slab::Slab;
    use alloc::vec::Vec;

    /// Frames of `count` short messages.
    fn frames(count: usize) -> Vec<FrameRef> {
        let mut sends = Slab::new();
        let mut frame = |_| FrameRef::Data {
            xfer: sends.insert(()),
            offset: 0,
            len: 63,
        };
        (0..count).map(&mut frame).collect()
    }

    fn push(resends: &mut Resends, frame: FrameRef) -> bool {
        resends.push(frame, 0, Why::Loss)
    }

    /// Frames with the paths to avoid.
    fn drain(resends: &mut Resends) -> Vec<(FrameRef, u16)> {
        let next = || {
            let entry = resends.front().copied();
            resends.pop_front();
            entry.map(|entry| (entry.frame, entry.avoid))
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn repeated_losses_queue_a_frame_once() {
        let (frames, mut resends) = (frames(1_000), Resends::default());
        for lost in 0..10 {
            for &frame in &frames {
                assert_eq!(push(&mut resends, frame), lost == 0);
            }
        }
        let left: Vec<_> = drain(&mut resends).into_iter().map(|e| e.0).collect();
        assert_eq!(left, frames);
        assert!(push(&mut resends, frames[500]), "it left, and is lost anew");
    }

    #[test]
    fn hedges_are_counted_until_they_leave() {
        let (frames, mut resends) = (frames(3), Resends::default());
        frames
            .iter()
            .for_each(|&frame| _ = push(&mut resends, frame));
        assert!(!resends.hedged());
        resends.hedge(frames[1], 7);
        resends.hedge(frames[1], 9);
        assert!(resends.hedged());
        resends.pop_front();
        let front = resends.front().map(|entry| (entry.frame, entry.avoid));
        assert_eq!(front, Some((frames[1], 9)));
        resends.pop_front();
        assert!(!resends.hedged());
        assert_eq!(resends.len(), 1);
    }

    #[test]
    fn the_rest_of_a_frame_keeps_its_position_and_code() {
        let (frames, mut resends) = (frames(2), Resends::default());
        frames
            .iter()
            .for_each(|&frame| _ = push(&mut resends, frame));
        resends.hedge(frames[0], 7);
        let FrameRef::Data { xfer, .. } = frames[0] else {
            unreachable!();
        };
        let (offset, len) = (48, 15);
        let rest = FrameRef::Data { xfer, offset, len };
        resends.cut_front(rest);
        assert!(!push(&mut resends, rest), "it is queued");
        assert!(
            push(&mut resends, frames[0]),
            "this part of it left, and is lost anew"
        );
        let left = [(rest, 7), (frames[1], ANYWHERE), (frames[0], ANYWHERE)];
        assert_eq!(drain(&mut resends), left);
        assert!(resends.places.is_empty() && !resends.hedged());
    }
}
