//! Grants of a node, and messages that wait for one.

use crate::base::slab::Key;
use alloc::collections::VecDeque;

/// Least bytes of a grant (or the rest of the message), as each costs a frame.
pub(crate) const GRANT_STEP: u64 = 32 * 1024;

/// Bytes of rendezvous messages that peers may send: granted bytes, and the queue for more.
#[derive(Debug)]
pub struct Grants {
    pub queue: VecDeque<Key>,
    /// Granted bytes that have not arrived, over all peers.
    pub out: u64,
    pub budget: u64,
    /// When to look for stale grants (data does not come) while messages wait for the budget.
    pub at: u64,
    /// No grant is stale before this time.
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

    /// The most bytes that one message may have granted but not received.
    pub fn window_max(&self) -> u64 {
        // Two messages share the budget, so that one whose sender computes does not stop all.
        (self.budget / 2).max(2 * GRANT_STEP)
    }

    /// Counts the first grant of a READ, which is part of the request. (The last search for stale
    /// grants did not include it.)
    pub fn give_first(&mut self, bytes: u64) {
        self.out += bytes;
        self.stale_at = 0;
    }

    /// Counts granted bytes that arrived or were withdrawn.
    #[inline]
    pub fn settle(&mut self, bytes: u64) {
        self.out -= bytes;
    }
}
