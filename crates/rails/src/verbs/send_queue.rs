//! Accounting of one send queue: its room, and the memory that its completions free.
//!
//! Only some requests are signalled: the last request that reads a buffer, and otherwise one from
//! time to time. A queue completes in order, so a completion covers all earlier requests. A
//! request's name (`wr_id`) is the count of requests posted so far, tagged with the life of the
//! queue pair, since completions of an earlier life may still arrive.

use crate::tx_buf::BufId;
use std::collections::VecDeque;

/// Bits of a name that count requests.
const COUNT_BITS: u32 = 48;

/// Memory that a request reads or, for `Peer`, fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Read {
    /// A buffer of the rail.
    Buffer(BufId),
    /// Application memory, by the write's token.
    Write(u64),
    /// A copy of application memory, by a number.
    Copy(u64),
    /// Peer memory, by the read's token.
    Peer(u64),
}

/// A send queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    depth: u64,
    /// At least one of this many requests is signalled.
    signal_after: u64,
    life: u16,
    posted: u64,
    done: u64,
    /// The last signalled request.
    signalled: u64,
    /// Memory in use, with the request that uses it and the rail's post count before that request.
    reads: VecDeque<(u64, u64, Read)>,
}

impl SendQueue {
    /// An empty queue of this depth, in a life of its queue pair.
    pub(super) fn new(depth: u32, life: u16) -> SendQueue {
        SendQueue {
            depth: depth.into(),
            signal_after: u64::from(depth) / 4,
            life,
            posted: 0,
            done: 0,
            signalled: 0,
            reads: VecDeque::new(),
        }
    }

    /// Signals the last request of each chain, so that soon after the last chain the queue is known
    /// to be empty.
    pub(super) fn signalling_each(self) -> SendQueue {
        SendQueue {
            signal_after: 1,
            ..self
        }
    }

    /// Number of requests that can be posted.
    #[inline]
    pub(super) fn room(&self) -> usize {
        (self.depth - (self.posted - self.done)) as usize
    }

    /// Returns whether completions have covered all requests.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.posted == self.done
    }

    /// Returns whether a completion is outstanding.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.signalled > self.done
    }

    /// Returns whether the last request is signalled.
    pub(super) fn is_signalled(&self) -> bool {
        self.signalled == self.posted
    }

    /// The name of the last of the next `count` requests.
    #[inline]
    pub(super) fn name(&self, count: usize) -> u64 {
        u64::from(self.life) << COUNT_BITS | (self.posted + count as u64)
    }

    /// Returns whether the last of the next `count` requests must be signalled although its
    /// completion frees no memory: without completions the queue would fill up.
    #[inline]
    pub(super) fn is_due(&self, count: usize) -> bool {
        self.posted + count as u64 - self.signalled >= self.signal_after
    }

    /// Records `count` posted requests that use `reads`; `signalled` if the last one is signalled.
    /// `before` is the rail's post count so far.
    #[inline]
    pub(super) fn posted(&mut self, count: usize, signalled: bool, reads: &[Read], before: u64) {
        self.posted += count as u64;
        if signalled {
            self.signalled = self.posted;
        }
        let at = self.posted;
        self.reads
            .extend((before..).zip(reads).map(|(n, read)| (at, n, *read)));
    }

    /// Handles a completion; `false` if its request was posted in an earlier life of the queue
    /// pair.
    #[inline]
    pub(super) fn completed(&mut self, name: u64) -> bool {
        let count = name & ((1 << COUNT_BITS) - 1);
        let ours = name >> COUNT_BITS == u64::from(self.life);
        let known = ours && count <= self.posted;
        if known {
            self.done = self.done.max(count);
        }
        known
    }

    /// The next memory that is no longer in use, and the rail's post count before its request.
    #[inline]
    pub(super) fn free(&mut self) -> Option<(u64, Read)> {
        let (at, number, read) = *self.reads.front()?;
        (at <= self.done).then(|| {
            self.reads.pop_front();
            (number, read)
        })
    }

    /// Records the reset of the queue pair, which ends all requests: [`Self::free`] then returns
    /// all memory.
    pub(super) fn reset(&mut self) {
        self.life = self.life.wrapping_add(1);
        self.done = self.posted;
        self.signalled = self.posted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_covers_all_earlier_requests() {
        let mut queue = SendQueue::new(8, 0);
        let read = |at| Read::Buffer(BufId(at));
        queue.posted(2, true, &[read(0)], 7);
        assert_eq!((queue.room(), queue.waits(), queue.free()), (6, true, None));
        queue.posted(1, false, &[], 0);
        assert!(queue.is_due(1), "two without a completion");
        let name = queue.name(3);
        queue.posted(3, true, &[read(1), read(2)], 9);
        assert!(queue.completed(name));
        assert_eq!(
            [(); 4].map(|()| queue.free()),
            [
                Some((7, read(0))),
                Some((9, read(1))),
                Some((10, read(2))),
                None
            ]
        );
        assert_eq!((queue.room(), queue.waits()), (8, false));
        assert!(!queue.completed(name + 1), "never posted");
    }

    #[test]
    fn completions_of_an_earlier_life_free_nothing() {
        let mut queue = SendQueue::new(8, 0);
        let read = |at| Read::Buffer(BufId(at));
        let old = queue.name(1);
        queue.posted(1, true, &[read(0)], 0);
        queue.reset();
        assert_eq!((queue.free(), queue.room()), (Some((0, read(0))), 8));
        queue.posted(1, true, &[read(1)], 1);
        assert!(!queue.completed(old));
        assert_eq!(queue.free(), None);
    }
}
