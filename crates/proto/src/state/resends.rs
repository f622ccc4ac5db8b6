//! Frames of lost packets, in the order in which they leave again, each once.

use crate::state::sent_packets::FrameRef;
use alloc::collections::{BTreeMap, VecDeque};
use core::mem::{replace, size_of};

/// No path to avoid for a frame that is sent again.
pub const ANYWHERE: u16 = u16::MAX;
/// Why a frame is sent again; the counters of its path tell these apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Acks showed that its packet was lost.
    Loss,
    /// No ack came in time.
    Repair,
    /// Its path was given up.
    Failover,
}

/// A frame that is to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend {
    pub frame: FrameRef,
    /// Code of the path that it is to avoid, or [`ANYWHERE`].
    pub avoid: u16,
    /// Index of the path that it left on before, and why it leaves again.
    pub path: u16,
    pub why: Why,
}

/// The queue of frames that are to be sent again. A frame that is lost as often as it is repeated
/// must not become more each time: a packet of 64 KB holds a thousand short messages.
#[derive(Debug, Default)]
pub struct Resends {
    queue: VecDeque<Resend>,
    /// Entries that left so far.
    left: u64,
    /// Where a frame stands: as many entries were or are before it.
    places: BTreeMap<FrameRef, u64>,
    /// Entries that avoid a path.
    hedges: usize,
}

impl Resends {
    /// Queues a frame; whether it was not queued yet.
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

    /// A frame that is queued is to avoid the path with this code.
    pub fn hedge(&mut self, frame: FrameRef, code: u16) {
        let at = self.places.get(&frame).map(|place| place - self.left);
        if let Some(entry) = at.and_then(|at| self.queue.get_mut(at as usize)) {
            self.hedges += (code != ANYWHERE) as usize;
            self.hedges -= (replace(&mut entry.avoid, code) != ANYWHERE) as usize;
        }
    }

    /// Returns whether a frame in it is to avoid a path: a repair, which does not wait for room.
    pub fn hedged(&self) -> bool {
        self.hedges > 0
    }

    pub fn front(&self) -> Option<&Resend> {
        self.queue.front()
    }

    pub fn pop_front(&mut self) {
        if let Some(entry) = self.queue.pop_front() {
            self.hedges -= (entry.avoid != ANYWHERE) as usize;
            self.vacate(&entry.frame);
            self.left += 1;
        }
    }

    /// The first frame left in part: `rest` has its place.
    pub fn cut_front(&mut self, rest: FrameRef) {
        if let Some(front) = self.queue.front_mut() {
            let frame = replace(&mut front.frame, rest);
            self.vacate(&frame);
            self.places.entry(rest).or_insert(self.left);
        }
    }

    /// The frame does not stand in front any more.
    fn vacate(&mut self, frame: &FrameRef) {
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

    /// Gives back what the queue does not need.
    pub fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Bytes that it takes beside itself. (What stands in the tree stands in the queue.)
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

    /// Frames of so many short messages.
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

    /// Frames with the paths that they avoid.
    fn drain(resends: &mut Resends) -> Vec<(FrameRef, u16)> {
        let next = || {
            let entry = resends.front().copied();
            resends.pop_front();
            entry.map(|entry| (entry.frame, entry.avoid))
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_packet_of_a_thousand_frames_that_is_lost_again_and_again_is_queued_once() {
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
    fn a_repair_is_known_wherever_it_stands_until_it_leaves() {
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
    fn what_is_left_of_a_frame_keeps_its_place_and_its_code() {
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
