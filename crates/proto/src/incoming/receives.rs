//! Posted receives and unexpected messages, with the messages in flight into multi-receives.

use crate::base::slab::Key;
use crate::base::types::{PeerId, RecvSpec};
use crate::state::matching::{Found, MatchedReceive, Matching, Posted, Waiting};
use alloc::collections::BTreeMap;
use marline_wire::MsgHead;

/// Outstanding completions of one multi-receive buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Multi {
    outstanding: u32,
    retired: bool,
}

/// State of a receive without the message that it had matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    /// The receive waits for a message again.
    Open,
    /// Other messages are in flight into the multi-receive, or it is still posted.
    InUse,
    /// The multi-receive is finished.
    Over,
}

/// The receives of a node.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    matching: Matching,
    multi: BTreeMap<u32, Multi>,
}

impl Receives {
    /// Posts a receive.
    pub(crate) fn post(&mut self, spec: &RecvSpec) {
        if spec.multi_min.is_some() {
            self.multi.insert(spec.handle, Multi::default());
        }
        self.matching.post(*spec);
    }

    /// The first posted receive that accepts the message, with its index for `take_at`.
    #[inline]
    pub(crate) fn locate(&mut self, peer: PeerId, head: &MsgHead) -> Option<(usize, Found)> {
        self.matching.locate(peer, head)
    }

    /// Takes the posted receive at index `at` (just located) for the message.
    #[inline]
    pub(crate) fn take_at(&mut self, at: usize, head: &MsgHead) -> Option<Found> {
        let found = self.matching.take_at(at, head)?;
        self.enter_multi(&found);
        Some(found)
    }

    /// Takes the first posted receive that accepts the message; also returns its state before that,
    /// with which it can be posted again.
    pub(crate) fn arrive(&mut self, peer: PeerId, head: &MsgHead) -> Option<(Found, Posted)> {
        let (at, _) = self.matching.locate(peer, head)?;
        let before = self.matching.posted_at(at, head)?;
        Some((self.take_at(at, head)?, before))
    }

    /// A receive that takes an unexpected message at once, with the number that a posted one would
    /// have.
    pub(crate) fn number(&mut self, spec: &RecvSpec) -> Posted {
        self.matching.number(*spec)
    }

    /// Ends a message that will not come for the receive that it matched, as if it had never been
    /// announced.
    pub(crate) fn give_back(&mut self, matched: &MatchedReceive) -> GivenBack {
        let MatchedReceive { posted, stayed } = *matched;
        let Some(multi) = self.multi.get_mut(&posted.spec.handle) else {
            return GivenBack::Open;
        };
        if stayed {
            // Later messages lie behind the message's place in the buffer.
            return match self.leave(posted.spec.handle) {
                true => GivenBack::Over,
                false => GivenBack::InUse,
            };
        }
        multi.outstanding -= 1;
        multi.retired = false;
        GivenBack::Open
    }

    /// Posts a receive again that was given back, at its place in the order.
    pub(crate) fn post_again(&mut self, posted: &Posted) {
        self.matching.post_again(*posted);
    }

    /// Counts a message in flight into a multi-receive buffer.
    fn enter_multi(&mut self, found: &Found) {
        if self.multi.is_empty() {
            return;
        }
        if let Some(multi) = self.multi.get_mut(&found.handle) {
            multi.outstanding += 1;
            multi.retired |= !found.stays;
        }
    }

    /// Ends one message into a receive. Returns true if the receive is finished.
    pub(crate) fn leave(&mut self, handle: u32) -> bool {
        if self.multi.is_empty() {
            return true;
        }
        let Some(multi) = self.multi.get_mut(&handle) else {
            return true;
        };
        multi.outstanding -= 1;
        let last = multi.retired && multi.outstanding == 0;
        if last {
            self.multi.remove(&handle);
        }
        last
    }

    pub(crate) fn add_unexpected(&mut self, peer: PeerId, head: &MsgHead, inbound: Key) {
        self.matching.add_unexpected(peer, head, inbound);
    }

    /// The first unexpected message that the receive accepts; `take` removes the message from the
    /// queue.
    pub(crate) fn find_unexpected(&mut self, spec: &RecvSpec, take: bool) -> Option<Waiting> {
        self.matching.find_unexpected(spec, take)
    }

    pub(crate) fn remove_unexpected(&mut self, inbound: Key) {
        self.matching.remove_unexpected(inbound);
    }

    /// Cancels a posted receive that is not matched; `None`: not found.
    pub(crate) fn cancel(&mut self, handle: u32) -> Option<Posted> {
        let posted = self.matching.cancel(handle)?;
        match self.multi.get_mut(&handle) {
            Some(multi) if multi.outstanding > 0 => multi.retired = true,
            _ => drop(self.multi.remove(&handle)),
        }
        Some(posted)
    }

    /// Returns whether messages are still in flight into a cancelled multi-receive.
    pub(crate) fn still_receives(&self, handle: u32) -> bool {
        self.multi.contains_key(&handle)
    }

    /// Cancels any posted receive, for closing.
    pub(crate) fn take_any(&mut self) -> Option<Posted> {
        self.matching.take_any()
    }

    /// Cancels the first receive that names a peer which is gone.
    pub(crate) fn take_directed(&mut self, peer: PeerId) -> Option<Posted> {
        self.matching.take_directed(peer)
    }

    /// Forgets a multi-receive without messages in flight.
    pub(crate) fn end_multi(&mut self, handle: u32) {
        if self.multi.get(&handle).is_some_and(|m| m.outstanding == 0) {
            self.multi.remove(&handle);
        }
    }

    /// Takes the first receive from any source that a peer's death ends.
    pub(crate) fn take_from_anyone(&mut self) -> Option<Posted> {
        self.matching.take_from_anyone()
    }

    /// True if a receive from any source is posted that a death ends.
    pub(crate) fn waits_for_anyone(&self) -> bool {
        self.matching.waits_for_anyone()
    }

    /// Number of posted receives.
    pub(crate) fn posted(&self) -> usize {
        self.matching.posted()
    }

    /// Number of multi-receive buffers.
    pub(crate) fn buffers(&self) -> usize {
        self.multi.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::Source;

    fn multi(handle: u32) -> RecvSpec {
        RecvSpec {
            handle,
            source: Source::Any,
            tag: None,
            capacity: 100,
            multi_min: Some(50),
        }
    }

    fn head(total: u64) -> MsgHead {
        MsgHead {
            number: 0,
            flags: 0,
            tag: 0,
            data: 0,
            total,
        }
    }

    #[test]
    fn a_retired_multi_receive_ends_with_its_last_message() {
        let mut receives = Receives::default();
        receives.post(&multi(7));
        let first = receives.arrive(PeerId(1), &head(40));
        assert!(first.is_some_and(|(found, _)| found.stays));
        let second = receives.arrive(PeerId(1), &head(40));
        assert!(second.is_some_and(|(found, _)| !found.stays && found.base == 40));
        assert!(receives.arrive(PeerId(1), &head(1)).is_none());
        assert!(!receives.leave(7), "the other message is in flight");
        assert!(receives.leave(7) && receives.buffers() == 0);
    }

    #[test]
    fn a_cancelled_multi_receive_waits_for_messages_in_flight() {
        let mut receives = Receives::default();
        receives.post(&multi(7));
        assert!(receives.cancel(7).is_some() && !receives.still_receives(7));
        receives.post(&multi(8));
        assert!(receives.arrive(PeerId(1), &head(10)).is_some());
        assert!(receives.cancel(8).is_some() && receives.still_receives(8));
        assert!(receives.leave(8) && !receives.still_receives(8));
    }
}
