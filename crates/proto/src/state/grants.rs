//! Grants that a node has given, and messages that wait for one.

use crate::base::slab::Key;
use alloc::collections::VecDeque;

/// A grant is worth a frame only for this many bytes (or the rest of the message).
pub(crate) const GRANT_STEP: u64 = 32 * 1024;

/// Bytes that peers may send of rendezvous messages: what is given, and to whom next.
#[derive(Debug)]
pub struct Grants {
    pub queue: VecDeque<Key>,
    /// Granted but not yet received bytes, of all peers.
    pub out: u64,
    pub budget: u64,
    /// When to look for grants whose data does not come, while others wait for the budget.
    pub at: u64,
    /// No grant is stale before: until then nobody looks for one.
    pub stale_at: u64,
}

impl Grants {
    pub fn new(budget: u64) -> Grants {
        Grants {
            queue: VecDeque::new(),
            out: 0,
            budget,
            at: u64::MAX,
            stale_at: 0,
        }
    }

    /// The most that one message may have granted but not received.
    pub fn window_max(&self) -> u64 {
        // Two messages share the budget, so that one whose sender computes does not stop all.
        (self.budget / 2).max(2 * GRANT_STEP)
    }

    /// The first grant of a READ, which asks for it itself. (The last look for stale ones knew
    /// nothing of it.)
    pub fn give_first(&mut self, bytes: u64) {
        self.out += bytes;
        self.stale_at = 0;
    }

    /// So much of what was granted came, or does not count any more.
    #[inline]
    pub fn settle(&mut self, bytes: u64) {
        self.out -= bytes;
    }
}
