//! Frames of lost packets, in the order in which they leave again, each once.

use crate::conn::Conn;
use crate::granules::Covered;
use crate::node::Node;
use crate::send_ring::FrameRef;
use crate::slab::Key;
use crate::transmit::Builder;
use alloc::collections::{BTreeMap, VecDeque};
use core::mem::{replace, size_of};
use marline_wire::{granules, Frame, Header, Rts, GRANULE};

/// No path to avoid for a frame that is sent again.
pub const ANYWHERE: u8 = u8::MAX;

/// A frame, and the code of the path that it is to avoid, or [`ANYWHERE`].
type Entry = (FrameRef, u8);

/// The queue. A frame that is lost as often as it is repeated must not become more each time: a
/// packet of 64 KB holds a thousand short messages, and repairs had queued 9,678 frames of 245
/// sends (seed 9751755).
#[derive(Debug, Default)]
pub struct Resends {
    queue: VecDeque<Entry>,
    /// Entries that left so far.
    left: u64,
    /// Where a frame stands: as many entries were or are before it.
    places: BTreeMap<FrameRef, u64>,
    /// Entries that avoid a path.
    hedges: usize,
}

impl Resends {
    /// Queues a frame; whether it was not queued yet.
    pub fn push(&mut self, frame: FrameRef) -> bool {
        let place = self.left + self.queue.len() as u64;
        let new = *self.places.entry(frame).or_insert(place) == place;
        if new {
            self.queue.push_back((frame, ANYWHERE));
        }
        new
    }

    /// A frame that is queued is to avoid the path with this code.
    pub fn hedge(&mut self, frame: FrameRef, code: u8) {
        let at = self.places.get(&frame).map(|place| place - self.left);
        if let Some((_, old)) = at.and_then(|at| self.queue.get_mut(at as usize)) {
            self.hedges += (code != ANYWHERE) as usize;
            self.hedges -= (replace(old, code) != ANYWHERE) as usize;
        }
    }

    /// Whether a frame in it is to avoid a path: a repair, which does not wait for room.
    pub fn hedged(&self) -> bool {
        self.hedges > 0
    }

    pub fn front(&self) -> Option<&Entry> {
        self.queue.front()
    }

    pub fn pop_front(&mut self) {
        if let Some((frame, code)) = self.queue.pop_front() {
            self.hedges -= (code != ANYWHERE) as usize;
            self.vacate(&frame);
            self.left += 1;
        }
    }

    /// The first frame left in part: `rest` has its place.
    pub fn cut_front(&mut self, rest: FrameRef) {
        if let Some(front) = self.queue.front_mut() {
            let frame = replace(&mut front.0, rest);
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
        self.queue.capacity() * size_of::<Entry>()
            + self.places.len() * size_of::<(FrameRef, u64)>()
    }
}

impl Node {
    /// What is to be sent again and fits; with `hedges_only`, no more than what a repair sends on
    /// two paths.
    pub(crate) fn add_resends(
        &mut self,
        conn: &mut Conn,
        b: &mut Builder<'_, '_>,
        hedges_only: bool,
    ) {
        while let Some(&(frame, code)) = conn.resend.front() {
            if hedges_only && code == ANYWHERE {
                break;
            }
            let fits = match frame {
                FrameRef::Data { xfer, offset, len } => {
                    self.resend_data(conn, xfer, offset, len, code, b)
                }
                FrameRef::Written {
                    xfer, offset, len, ..
                } => {
                    self.unwrite(xfer, offset, len);
                    self.resend_data(conn, xfer, offset, len, code, b)
                }
                FrameRef::Rts(key) => match self.sends.get(key) {
                    Some(send) if !send.granted => {
                        b.control(&Frame::Rts(Rts { head: send.head }), Some(frame))
                    }
                    _ => true,
                },
                _ => true,
            };
            if !fits {
                break;
            }
            conn.resend.pop_front();
        }
    }

    /// Sends a span again, as much as fits; `false`: some is left at the queue's front.
    fn resend_data(
        &mut self,
        conn: &mut Conn,
        key: Key,
        offset: u64,
        len: u32,
        code: u8,
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let Some(send) = self.sends.get(key) else {
            return true;
        };
        let n = granules(len as u64);
        if send.acked.covered(offset / GRANULE, n) == Covered::All {
            return true;
        }
        let urgent = send.urgent || code != ANYWHERE;
        let Some(pushed) = self.push_data(key, offset, len, b) else {
            return false;
        };
        if urgent {
            b.flags |= Header::FLAG_ACK_NOW;
        }
        if pushed < len {
            let rest = FrameRef::Data {
                xfer: key,
                offset: offset + pushed as u64,
                len: len - pushed,
            };
            conn.resend.cut_front(rest);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
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

    fn drain(resends: &mut Resends) -> Vec<Entry> {
        let next = || {
            let entry = resends.front().copied();
            resends.pop_front();
            entry
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_packet_of_a_thousand_frames_that_is_lost_again_and_again_is_queued_once() {
        let (frames, mut resends) = (frames(1_000), Resends::default());
        for lost in 0..10 {
            for &frame in &frames {
                assert_eq!(resends.push(frame), lost == 0);
            }
        }
        let left: Vec<_> = drain(&mut resends).into_iter().map(|e| e.0).collect();
        assert_eq!(left, frames);
        assert!(resends.push(frames[500]), "it left, and is lost anew");
    }

    #[test]
    fn a_repair_is_known_wherever_it_stands_until_it_leaves() {
        let (frames, mut resends) = (frames(3), Resends::default());
        frames.iter().for_each(|&frame| _ = resends.push(frame));
        assert!(!resends.hedged());
        resends.hedge(frames[1], 7);
        resends.hedge(frames[1], 9);
        assert!(resends.hedged());
        resends.pop_front();
        assert_eq!(resends.front(), Some(&(frames[1], 9)));
        resends.pop_front();
        assert!(!resends.hedged());
        assert_eq!(resends.len(), 1);
    }

    #[test]
    fn what_is_left_of_a_frame_keeps_its_place_and_its_code() {
        let (frames, mut resends) = (frames(2), Resends::default());
        frames.iter().for_each(|&frame| _ = resends.push(frame));
        resends.hedge(frames[0], 7);
        let FrameRef::Data { xfer, .. } = frames[0] else {
            unreachable!();
        };
        let (offset, len) = (48, 15);
        let rest = FrameRef::Data { xfer, offset, len };
        resends.cut_front(rest);
        assert!(!resends.push(rest), "it is queued");
        assert!(
            resends.push(frames[0]),
            "this part of it left, and is lost anew"
        );
        let left = [(rest, 7), (frames[1], ANYWHERE), (frames[0], ANYWHERE)];
        assert_eq!(drain(&mut resends), left);
        assert!(resends.places.is_empty() && !resends.hedged());
    }
}
