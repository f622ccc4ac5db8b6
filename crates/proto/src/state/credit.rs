//! Credit of a conversation: how much unexpected payload each end may have unread at the other.

use crate::base::config::{FIRST_CREDIT, MESSAGE_OVERHEAD};
use core::fmt;

/// Credit that only rendezvous requests may use: 64 of them under way.
const REQUEST_RESERVE: u64 = 64 * MESSAGE_OVERHEAD;

/// Credit of both directions, in bytes, cumulative.
#[derive(Debug)]
pub struct Credit {
    /// The bound that the peer set, and how much of it our messages have used.
    limit: u64,
    used: u64,
    /// Eager bytes that the peer may have unread here: decided at first contact, and more if it
    /// needs it and there is memory.
    window: u64,
    given: u64,
    announced: u64,
    /// Credit that the messages seen so far have used.
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

    /// Returns whether the payload of a message of `len` bytes may leave unasked. It leaves the
    /// reserve to requests: they must go on when the receiver is full of messages it does not want
    /// yet, for one that it does may come after them.
    #[inline]
    pub fn allows(&self, len: u64) -> bool {
        self.used + Credit::cost(len) + REQUEST_RESERVE <= self.limit
    }

    /// Returns whether something of this cost may leave at all.
    #[inline]
    pub fn covers(&self, cost: u64) -> bool {
        self.used + cost <= self.limit
    }

    /// Something of this cost leaves.
    #[inline]
    pub fn spend(&mut self, cost: u64) {
        self.used += cost;
    }

    /// The peer allows this much in all. (What it said earlier may arrive later.)
    pub fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// First contact: the peer may have this much unread here.
    pub fn open(&mut self, window: u64) {
        self.window = window;
    }

    /// Eager bytes that the peer may have unread here.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// More than half of what the peer may have unread here is.
    pub fn is_crowded(&self) -> bool {
        let back = self.given - FIRST_CREDIT;
        self.seen.saturating_sub(back) > self.window / 2
    }

    /// The peer may have so much more unread here, and is to be told.
    pub fn widen(&mut self, bytes: u64) {
        self.window += bytes;
        self.due = true;
    }

    /// The peer's limit, as it is to be told.
    pub fn granted(&self) -> u64 {
        self.given + self.window - FIRST_CREDIT
    }

    /// Memory of an eager message was freed.
    pub fn give(&mut self, bytes: u64) {
        self.given += bytes;
    }

    /// A message arrived that used so much.
    pub fn see(&mut self, bytes: u64) {
        self.seen += bytes;
    }

    /// The peer is to be told of its limit.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Decides that the peer is told of returned credit when it has used half of what it knows of;
    /// whether it was decided now. (By what it has left, not by what came back: with less left than
    /// its next message costs, and less returned than is worth a frame, it would wait for ever.)
    pub fn comes_due(&mut self) -> bool {
        let limit = self.announced + self.window - FIRST_CREDIT;
        let low = limit.saturating_sub(self.seen) < self.window / 2;
        let due = low && self.given > self.announced && !self.due;
        self.due |= due;
        due
    }

    /// The peer is told again, since what told it was lost; false if it is to be told anyway.
    pub fn tell_again(&mut self) -> bool {
        !core::mem::replace(&mut self.due, true)
    }

    /// The peer is told now.
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
