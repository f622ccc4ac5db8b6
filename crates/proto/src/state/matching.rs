//! Posted receives and unexpected messages, in MPI's order.

use crate::base::slab::Key;
use crate::base::types::{PeerId, RecvSpec, Source};
use crate::state::match_index::{Class, Entry, MatchIndex, View};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use marline_wire::{MsgHead, FLAG_TAGGED};

/// Entries that a search may look at before the queue gets an index, and the length at which the
/// queue loses its index again. Most matches are at the front, where a list is cheaper than tables.
const LOOKS_MAX: usize = 32;
const FEW_AGAIN: usize = 8;

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub spec: RecvSpec,
    /// Multi-receive: bytes used so far.
    pub used: u64,
    /// Receives posted later have a higher number.
    pub order: u64,
}

/// A receive that a message has matched.
#[derive(Clone, Copy, Debug)]
pub struct MatchedReceive {
    /// The receive, as it was posted before.
    pub posted: Posted,
    /// The receive is a multi-receive and stayed posted.
    pub stayed: bool,
}

/// An unexpected message, as matching sees it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub peer: PeerId,
    pub tag: u64,
    pub inbound: Key,
}

impl RecvSpec {
    /// The tag and its ignored bits; a receive without a tag ignores all.
    pub(crate) fn wanted(&self) -> (u64, u64) {
        self.tag.unwrap_or((0, u64::MAX))
    }

    fn class(&self) -> Class {
        Class {
            directed: self.source != Source::Any,
            ignore: self.wanted().1,
        }
    }

    /// The accepted source and tag, as the class compares them.
    fn view(&self) -> View {
        let peer = match self.source {
            Source::Any => 0,
            Source::Peer(peer) => peer.0,
        };
        self.class().view(peer, self.wanted().0)
    }

    fn accepts(&self, peer: PeerId, tag: u64) -> bool {
        let source = match self.source {
            Source::Any => true,
            Source::Peer(p) => p == peer,
        };
        let (want, ignore) = self.wanted();
        source && (want ^ tag) & !ignore == 0
    }
}

impl Entry for Posted {
    fn class(&self) -> Option<Class> {
        Some(self.spec.class())
    }

    fn view(&self, _: &Class) -> View {
        self.spec.view()
    }
}

impl Entry for Waiting {
    fn class(&self) -> Option<Class> {
        None
    }

    fn view(&self, class: &Class) -> View {
        class.view(self.peer.0, self.tag)
    }
}

/// A queue, with an index while it is long.
#[derive(Debug)]
enum Queue<T> {
    Short(VecDeque<T>),
    Long(Box<MatchIndex<T>>),
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue::Short(VecDeque::new())
    }
}

impl<T: Entry> Queue<T> {
    #[inline]
    fn push(&mut self, entry: T) {
        match self {
            Queue::Short(queue) => queue.push_back(entry),
            Queue::Long(index) => index.push(entry),
        }
    }

    /// The index of the oldest matching entry; `None` if the queue has a match index. A queue that
    /// was searched far gets a match index.
    #[inline]
    fn look(&mut self, fits: impl Fn(&T) -> bool) -> Option<Option<usize>> {
        let Queue::Short(queue) = self else {
            return None;
        };
        let at = queue.iter().position(fits);
        if at.unwrap_or(queue.len()) < LOOKS_MAX {
            return Some(at);
        }
        *self = Queue::Long(Box::new(MatchIndex::new(queue.drain(..))));
        None
    }

    /// The index of the oldest matching entry, searched from the front.
    fn find(&self, fits: impl Fn(&T) -> bool) -> Option<usize> {
        match self {
            Queue::Short(few) => few.iter().position(fits),
            Queue::Long(index) => {
                let mut all = index.iter();
                all.find_map(|(at, entry)| fits(entry).then_some(at))
            }
        }
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match self {
            Queue::Short(few) => few.get_mut(at),
            Queue::Long(index) => index.get_mut(at),
        }
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        match self {
            Queue::Short(few) => few.remove(at),
            Queue::Long(index) => {
                let entry = index.remove(at);
                if index.len() <= FEW_AGAIN {
                    let few = index.iter().map(|(_, entry)| *entry).collect();
                    *self = Queue::Short(few);
                }
                entry
            }
        }
    }

    /// Removes the oldest matching entry, searched from the front.
    fn take(&mut self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.find(fits)?;
        self.remove(at)
    }

    fn len(&self) -> usize {
        match self {
            Queue::Short(few) => few.len(),
            Queue::Long(index) => index.len(),
        }
    }
}

impl Queue<Posted> {
    /// Inserts a receive before those posted after it. Rare: the queue loses its index.
    fn insert(&mut self, posted: Posted) {
        let mut all = match core::mem::take(self) {
            Queue::Short(few) => few,
            Queue::Long(index) => index.iter().map(|(_, entry)| *entry).collect(),
        };
        let later = all.iter().position(|other| other.order > posted.order);
        all.insert(later.unwrap_or(all.len()), posted);
        *self = Queue::Short(all);
    }

    /// The index of the first receive that accepts a message.
    #[inline]
    fn first_for(&mut self, peer: PeerId, tag: u64) -> Option<usize> {
        let accepts = |p: &Posted| p.spec.accepts(peer, tag);
        if let Some(found) = self.look(accepts) {
            return found;
        }
        match self {
            Queue::Long(index) if index.is_complete() => index.first_for(peer.0, tag),
            _ => self.find(accepts),
        }
    }
}

impl Queue<Waiting> {
    /// The index of the first message that a receive accepts.
    #[inline]
    fn first_of(&mut self, spec: &RecvSpec) -> Option<usize> {
        let accepts = |w: &Waiting| spec.accepts(w.peer, w.tag);
        if let Some(found) = self.look(accepts) {
            return found;
        }
        if let Queue::Long(index) = self {
            if index.add_table(spec.class()) {
                return index.first_of(&spec.class(), &spec.view());
            }
        }
        self.find(accepts)
    }
}

/// The two queues of tagged or of untagged messages.
#[derive(Debug, Default)]
struct Queues {
    posted: Queue<Posted>,
    unexpected: Queue<Waiting>,
}

/// Posted receives and unexpected messages, tagged and untagged.
#[derive(Debug, Default)]
pub struct Matching {
    tagged: Queues,
    untagged: Queues,
    /// Number of the next posted receive.
    next: u64,
}

/// A posted receive that was found for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub handle: u32,
    /// Offset in the receive's buffer.
    pub base: u64,
    /// Bytes available from `base` on.
    pub capacity: u64,
    /// The receive names its source.
    pub directed: bool,
    /// The receive is a multi-receive and stays posted.
    pub stays: bool,
    /// Bits of the tag that the receive ignores.
    pub ignore: u64,
}

impl Found {
    /// The whole buffer of a receive, for a message that is not matched in order.
    pub(crate) fn whole(spec: &RecvSpec) -> Found {
        Found {
            handle: spec.handle,
            base: 0,
            capacity: spec.capacity,
            directed: false,
            stays: false,
            ignore: spec.wanted().1,
        }
    }

    /// Number of watches over the source that end with this match.
    pub fn unwatches(&self) -> u32 {
        (self.directed && !self.stays) as u32
    }
}

impl Matching {
    fn of(&mut self, tagged: bool) -> &mut Queues {
        if tagged {
            &mut self.tagged
        } else {
            &mut self.untagged
        }
    }

    /// The first posted receive that accepts the message, with its index for `take_at`.
    pub fn locate(&mut self, peer: PeerId, head: &MsgHead) -> Option<(usize, Found)> {
        let posted = &mut self.of(head.flags & FLAG_TAGGED != 0).posted;
        let at = posted.first_for(peer, head.tag)?;
        let Posted { spec, used, .. } = *posted.get_mut(at)?;
        let directed = spec.source != Source::Any;
        let capacity = spec.capacity - used;
        Some((
            at,
            Found {
                handle: spec.handle,
                base: used,
                capacity,
                directed,
                stays: false,
                ignore: spec.wanted().1,
            },
        ))
    }

    /// Takes the first posted receive that accepts the message.
    #[cfg(test)]
    pub fn arrive(&mut self, peer: PeerId, head: &MsgHead) -> Option<Found> {
        let (at, _) = self.locate(peer, head)?;
        self.take_at(at, head)
    }

    /// Takes the posted receive at index `at` (just located) for the message. A multi-receive gives
    /// part of its buffer, and stays posted while at least its minimum is left.
    pub fn take_at(&mut self, at: usize, head: &MsgHead) -> Option<Found> {
        let queue = &mut self.of(head.flags & FLAG_TAGGED != 0).posted;
        let posted = queue.get_mut(at)?;
        let (base, spec) = (posted.used, posted.spec);
        let mut stays = false;
        if let Some(min) = spec.multi_min {
            let used = (base + head.total).min(spec.capacity);
            posted.used = used.next_multiple_of(8).min(spec.capacity);
            stays = spec.capacity - posted.used >= min.max(1);
        }
        if !stays {
            queue.remove(at);
        }
        let capacity = spec.capacity - base;
        let directed = spec.source != Source::Any;
        Some(Found {
            handle: spec.handle,
            base,
            capacity,
            directed,
            stays,
            ignore: spec.wanted().1,
        })
    }

    /// Number of posted receives.
    pub fn posted(&self) -> usize {
        self.tagged.posted.len() + self.untagged.posted.len()
    }

    pub fn post(&mut self, spec: RecvSpec) {
        let posted = self.number(spec);
        self.of(spec.tag.is_some()).posted.push(posted);
    }

    /// A receive with the next number.
    pub fn number(&mut self, spec: RecvSpec) -> Posted {
        self.next += 1;
        Posted {
            spec,
            used: 0,
            order: self.next,
        }
    }

    /// Posts a receive again, at its place in the order.
    pub fn post_again(&mut self, posted: Posted) {
        self.of(posted.spec.tag.is_some()).posted.insert(posted);
    }

    /// The posted receive at index `at` (just located).
    pub fn posted_at(&mut self, at: usize, head: &MsgHead) -> Option<Posted> {
        let queue = &mut self.of(head.flags & FLAG_TAGGED != 0).posted;
        queue.get_mut(at).copied()
    }

    pub fn add_unexpected(&mut self, peer: PeerId, head: &MsgHead, inbound: Key) {
        let waiting = Waiting {
            peer,
            tag: head.tag,
            inbound,
        };
        self.of(head.flags & FLAG_TAGGED != 0)
            .unexpected
            .push(waiting);
    }

    /// The first unexpected message that the receive accepts; `take` removes the message from the
    /// queue.
    pub fn find_unexpected(&mut self, spec: &RecvSpec, take: bool) -> Option<Waiting> {
        let queue = &mut self.of(spec.tag.is_some()).unexpected;
        let at = queue.first_of(spec)?;
        if take {
            queue.remove(at)
        } else {
            queue.get_mut(at).copied()
        }
    }

    pub fn remove_unexpected(&mut self, inbound: Key) {
        for queues in [&mut self.tagged, &mut self.untagged] {
            queues.unexpected.take(|w| w.inbound == inbound);
        }
    }

    /// Removes a posted receive.
    pub fn cancel(&mut self, handle: u32) -> Option<Posted> {
        self.take_posted(|p| p.spec.handle == handle)
    }

    /// Takes the first posted receive that names this peer.
    pub fn take_directed(&mut self, peer: PeerId) -> Option<Posted> {
        self.take_posted(|p| p.spec.source == Source::Peer(peer))
    }

    /// Takes the first receive from any source that the death of a peer ends.
    pub fn take_from_anyone(&mut self) -> Option<Posted> {
        self.tagged.posted.take(|p| p.spec.is_from_any_source())
    }

    /// True if a receive from any source is posted that a death ends.
    pub fn waits_for_anyone(&self) -> bool {
        let waits = self.tagged.posted.find(|p| p.spec.is_from_any_source());
        waits.is_some()
    }

    /// Takes any posted receive, for closing.
    pub fn take_any(&mut self) -> Option<Posted> {
        self.take_posted(|_| true)
    }

    fn take_posted(&mut self, fits: impl Fn(&Posted) -> bool) -> Option<Posted> {
        let found = self.tagged.posted.take(&fits);
        found.or_else(|| self.untagged.posted.take(&fits))
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
