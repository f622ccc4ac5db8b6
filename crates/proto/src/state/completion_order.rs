//! Completion order: if one receive could have matched either of two complete messages, the earlier
//! message is reported first (docs/design/libfabric.md).

use crate::base::slab::Key;
use crate::base::types::PeerId;
use alloc::collections::BTreeMap;

/// A tagged message that was matched with a receive and is not reported yet.
#[derive(Debug)]
struct Open {
    tag: u64,
    /// Bits of the tag that the message's receive ignores.
    ignore: u64,
    inbound: Key,
    /// The message is complete and waits for an earlier one.
    held: bool,
}

/// Tagged messages that were matched and are not reported, by peer and number.
#[derive(Debug, Default)]
pub struct CompletionOrder {
    open: BTreeMap<(PeerId, u64), Open>,
    held: usize,
}

impl CompletionOrder {
    /// Adds a message whose receive ignores these bits of the tag.
    pub fn enter(&mut self, at: (PeerId, u64), (tag, ignore): (u64, u64), inbound: Key) {
        let open = Open {
            tag,
            ignore,
            inbound,
            held: false,
        };
        self.open.insert(at, open);
    }

    /// True if an earlier message of the peer must be reported before this one.
    #[inline]
    pub fn waits(&self, at: (PeerId, u64), (tag, ignore): (u64, u64)) -> bool {
        let akin = |open: &Open| (open.tag ^ tag) & !(open.ignore | ignore) == 0;
        !self.open.is_empty() && self.open.range((at.0, 0)..at).any(|(_, open)| akin(open))
    }

    /// Holds a complete message if an earlier one must be reported first. Returns whether it did.
    pub fn hold(&mut self, at: (PeerId, u64)) -> bool {
        let Some(Open { tag, ignore, .. }) = self.open.get(&at) else {
            return false;
        };
        if !self.waits(at, (*tag, *ignore)) {
            return false;
        }
        if let Some(open) = self.open.get_mut(&at) {
            self.held += !open.held as usize;
            open.held = true;
        }
        true
    }

    /// Removes a message that was reported or failed.
    #[inline]
    pub fn leave(&mut self, at: (PeerId, u64)) {
        if !self.open.is_empty() {
            let open = self.open.remove(&at);
            self.held -= open.is_some_and(|open| open.held) as usize;
        }
    }

    /// The first held message of the peer that may be reported.
    #[inline]
    pub fn next(&self, peer: PeerId) -> Option<Key> {
        if self.held == 0 {
            return None;
        }
        let mut all = self.open.range((peer, 0)..=(peer, u64::MAX));
        let due = all.find(|(at, open)| open.held && !self.waits(**at, (open.tag, open.ignore)));
        due.map(|(_, open)| open.inbound)
    }
}
