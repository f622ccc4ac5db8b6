//! Posted receives and unexpected messages, in MPI's order.

use crate::slab::Key;
use crate::types::{PeerId, RecvSpec, Source};
use alloc::collections::VecDeque;
use marline_wire::{MsgHead, FLAG_TAGGED};

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub spec: RecvSpec,
    /// Multi-receive: bytes used so far.
    pub used: u64,
}

/// An unexpected message, as matching sees it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub peer: PeerId,
    pub tag: u64,
    pub inbound: Key,
}

/// One kind's (tagged or untagged) two queues.
#[derive(Debug, Default)]
struct Queues {
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Waiting>,
}

/// Both kinds.
#[derive(Debug, Default)]
pub struct Matching {
    tagged: Queues,
    untagged: Queues,
}

/// A posted receive that was found for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub handle: u32,
    /// Offset in its buffer.
    pub base: u64,
    /// Bytes there.
    pub capacity: u64,
    /// The receive names its source.
    pub directed: bool,
    /// It was a multi-receive, still posted.
    pub stays: bool,
}

impl Found {
    /// Watches over its source that end with this match.
    pub fn unwatches(&self) -> u32 {
        (self.directed && !self.stays) as u32
    }
}

fn accepts(spec: &RecvSpec, peer: PeerId, tag: u64) -> bool {
    let source = match spec.source {
        Source::Any => true,
        Source::Peer(p) => p == peer,
    };
    source
        && spec
            .tag
            .is_none_or(|(want, ignore)| (want ^ tag) & !ignore == 0)
}

impl Matching {
    fn of(&mut self, tagged: bool) -> &mut Queues {
        if tagged {
            &mut self.tagged
        } else {
            &mut self.untagged
        }
    }

    /// The first posted receive that accepts the message, and where it stands; for `take_at`.
    pub fn locate(&mut self, peer: PeerId, head: &MsgHead) -> Option<(usize, Found)> {
        let queues = self.of(head.flags & FLAG_TAGGED != 0);
        let at = queues
            .posted
            .iter()
            .position(|p| accepts(&p.spec, peer, head.tag))?;
        let Posted { spec, used } = queues.posted[at];
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
            },
        ))
    }

    /// Takes the first posted receive that accepts the message.
    pub fn arrive(&mut self, peer: PeerId, head: &MsgHead) -> Option<Found> {
        let (at, _) = self.locate(peer, head)?;
        Some(self.take_at(at, head))
    }

    /// Takes the posted receive at `at` (just located) for the message. A multi-receive gives
    /// room and stays while at least its minimum is left.
    pub fn take_at(&mut self, at: usize, head: &MsgHead) -> Found {
        let queues = self.of(head.flags & FLAG_TAGGED != 0);
        let posted = &mut queues.posted[at];
        let (base, spec) = (posted.used, posted.spec);
        let mut stays = false;
        if let Some(min) = spec.multi_min {
            let used = (base + head.total).min(spec.capacity);
            posted.used = used.next_multiple_of(8).min(spec.capacity);
            stays = spec.capacity - posted.used >= min.max(1);
        }
        if !stays {
            queues.posted.remove(at);
        }
        let capacity = spec.capacity - base;
        let directed = spec.source != Source::Any;
        Found {
            handle: spec.handle,
            base,
            capacity,
            directed,
            stays,
        }
    }

    /// Posted receives.
    pub fn posted(&self) -> usize {
        self.tagged.posted.len() + self.untagged.posted.len()
    }

    pub fn post(&mut self, spec: RecvSpec) {
        self.of(spec.tag.is_some())
            .posted
            .push_back(Posted { spec, used: 0 });
    }

    pub fn add_unexpected(&mut self, peer: PeerId, head: &MsgHead, inbound: Key) {
        let waiting = Waiting {
            peer,
            tag: head.tag,
            inbound,
        };
        self.of(head.flags & FLAG_TAGGED != 0)
            .unexpected
            .push_back(waiting);
    }

    /// First unexpected message that the receive accepts; `take` removes it.
    pub fn find_unexpected(&mut self, spec: &RecvSpec, take: bool) -> Option<Waiting> {
        let queue = &mut self.of(spec.tag.is_some()).unexpected;
        let at = queue.iter().position(|w| accepts(spec, w.peer, w.tag))?;
        if take {
            queue.remove(at)
        } else {
            queue.get(at).copied()
        }
    }

    pub fn remove_unexpected(&mut self, inbound: Key) {
        for queues in [&mut self.tagged, &mut self.untagged] {
            queues.unexpected.retain(|w| w.inbound != inbound);
        }
    }

    /// Takes back a posted receive.
    pub fn cancel(&mut self, handle: u32) -> Option<Posted> {
        for queues in [&mut self.tagged, &mut self.untagged] {
            if let Some(at) = queues.posted.iter().position(|p| p.spec.handle == handle) {
                return queues.posted.remove(at);
            }
        }
        None
    }

    /// Takes the first posted receive that names this peer.
    pub fn take_directed(&mut self, peer: PeerId) -> Option<Posted> {
        for queues in [&mut self.tagged, &mut self.untagged] {
            let names = |p: &Posted| p.spec.source == Source::Peer(peer);
            if let Some(at) = queues.posted.iter().position(names) {
                return queues.posted.remove(at);
            }
        }
        None
    }

    /// Takes the first receive from anyone that a death ends.
    pub fn take_from_anyone(&mut self) -> Option<Posted> {
        let queue = &mut self.tagged.posted;
        let at = queue.iter().position(|p| p.spec.names_nobody())?;
        queue.remove(at)
    }

    /// Whether one is posted.
    pub fn waits_for_anyone(&self) -> bool {
        self.tagged.posted.iter().any(|p| p.spec.names_nobody())
    }

    /// Takes any posted receive, for closing.
    pub fn take_any(&mut self) -> Option<Posted> {
        self.tagged
            .posted
            .pop_front()
            .or_else(|| self.untagged.posted.pop_front())
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
