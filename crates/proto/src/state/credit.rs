//! Credit of a connection: how much eager payload each end may have unread at the other.

use crate::base::config::{FIRST_CREDIT, MESSAGE_OVERHEAD};
use core::fmt;

/// Credit reserved for rendezvous requests: 64 in flight.
const REQUEST_RESERVE: u64 = 64 * MESSAGE_OVERHEAD;

/// Credit of both directions, in bytes, cumulative.
#[derive(Debug)]
pub struct Credit {
    /// The limit that the peer set, and how much of it our messages have used.
    limit: u64,
    used: u64,
    /// Eager bytes that the peer may have unread here: set at first contact, and raised if the peer
    /// needs it and there is memory.
    window: u64,
    given: u64,
    announced: u64,
    /// Credit used by the messages received so far.
    seen: u64,
    due: bool,
}

impl Default for Credit {
    fn default() -> Credit {
        Credit {
            limit: FIRST_CREDIT,
            used: 0,
            window: FIRST_CREDIT,
            given: FIRST_CREDIT,
            announced: FIRST_CREDIT,
            seen: 0,
            due: false,
        }
    }
}

impl Credit {
    /// Credit that a message of this many eager bytes takes.
    #[inline]
    pub fn cost(eager_bytes: u64) -> u64 {
        eager_bytes + MESSAGE_OVERHEAD
    }

    /// True if the payload of a message of `len` bytes may leave eagerly. The reserve is left for
    /// requests: they must go on when the receiver is full of unexpected messages, since the
    /// expected one may be behind these.
    #[inline]
    pub fn allows(&self, len: u64) -> bool {
        self.used + Credit::cost(len) + REQUEST_RESERVE <= self.limit
    }

    /// True if a message or request of this cost may leave.
    #[inline]
    pub fn covers(&self, cost: u64) -> bool {
        self.used + cost <= self.limit
    }

    /// Takes the cost from the credit.
    #[inline]
    pub fn spend(&mut self, cost: u64) {
        self.used += cost;
    }

    /// Raises the limit that the peer set. (An older limit may arrive later.)
    pub fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Sets the peer's window at first contact.
    pub fn open(&mut self, window: u64) {
        self.window = window;
    }

    /// Eager bytes that the peer may have unread here.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// True if the peer has used more than half of its window.
    pub fn is_crowded(&self) -> bool {
        let back = self.given - FIRST_CREDIT;
        self.seen.saturating_sub(back) > self.window / 2
    }

    /// Enlarges the peer's window; the peer is to be told.
    pub fn probe_sizes_if_bulk(&mut self, bytes: u64) {
        self.window += bytes;
        self.due = true;
    }

    /// The peer's limit as the next CREDIT frame reports it.
    pub fn granted(&self) -> u64 {
        self.given + self.window - FIRST_CREDIT
    }

    /// Returns the credit of a freed eager message.
    pub fn give(&mut self, bytes: u64) {
        self.given += bytes;
    }

    /// Counts the credit of a received message.
    pub fn see(&mut self, bytes: u64) {
        self.seen += bytes;
    }

    /// True if the peer's limit is to be sent.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Marks a CREDIT frame as due when the peer has used half of the limit that it knows; returns
    /// true if newly marked. (Judged by the credit it has left, not by the amount returned: with
    /// less left than its next message costs, and too little returned for a frame, the peer would
    /// wait for ever.)
    pub fn comes_due(&mut self) -> bool {
        let limit = self.announced + self.window - FIRST_CREDIT;
        let low = limit.saturating_sub(self.seen) < self.window / 2;
        let due = low && self.given > self.announced && !self.due;
        self.due |= due;
        due
    }

    /// Marks the lost CREDIT frame as due again; false if it was due anyway.
    pub fn tell_again(&mut self) -> bool {
        !core::mem::replace(&mut self.due, true)
    }

    /// Notes that the CREDIT frame leaves.
    pub fn told(&mut self) {
        self.announced = self.given;
        self.due = false;
    }
}

impl fmt::Display for Credit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "credit used {}/{}", self.used, self.limit)?;
        write!(out, " given {} told {}", self.given, self.announced)?;
        write!(out, " seen {}", self.seen)
    }
}
