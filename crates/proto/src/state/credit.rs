//! Credit of a connection: the eager payload that each end may have unread at the other. It bounds
//! the unexpected payload of each peer, and [`PromisedCredit`] that of all peers together.

use crate::base::config::{Config, FIRST_CREDIT, MESSAGE_OVERHEAD};
use crate::base::mutation::Mutation;
use core::fmt;

/// Credit reserved for rendezvous requests: 64 in flight.
const REQUEST_RESERVE: u64 = 64 * MESSAGE_OVERHEAD;

/// Credit of both directions, in bytes, cumulative.
#[derive(Debug)]
pub struct Credit {
    /// The limit that the peer set, and the part of it that our messages have used.
    limit: u64,
    used: u64,
    /// Eager bytes that the peer may have unread here: set at first contact, and raised if the peer
    /// needs more and there is memory.
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

    /// True if the payload of a message of `len` bytes may leave eagerly. Payload must leave the
    /// reserve for requests, which must get through even if the receiver is full of unexpected
    /// messages: the expected message may be behind these.
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

    /// Raises the limit that the peer set. (Lower, older limits may arrive late.)
    pub fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// True if the peer has used more than half of its window.
    fn is_window_half_unread(&self) -> bool {
        let back = self.given - FIRST_CREDIT;
        self.seen.saturating_sub(back) > self.window / 2
    }

    /// The peer's limit as the next CREDIT frame reports it.
    pub fn granted(&self) -> u64 {
        self.given + self.window - FIRST_CREDIT
    }

    /// Credit granted to the peer for which no message has arrived.
    pub fn outstanding(&self) -> u64 {
        self.granted().saturating_sub(self.seen)
    }

    /// Returns the credit of freed eager bytes. True if a CREDIT frame has become due.
    pub fn give(&mut self, bytes: u64, cfg: &Config) -> bool {
        let times = 1 + cfg.errs(Mutation::Hoard) as u64;
        self.given += bytes * times;
        self.comes_due(cfg)
    }

    /// Counts the credit of a received message. True if a CREDIT frame has become due.
    pub fn see(&mut self, bytes: u64, cfg: &Config) -> bool {
        self.seen += bytes;
        self.comes_due(cfg)
    }

    /// True if the peer's limit is to be sent.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Marks a CREDIT frame as due when the peer has used half of the limit that it knows. Returns
    /// true if newly marked. (The test is the credit left to the peer, not the credit to return: a
    /// peer whose credit left is less than its next message costs, while too little was returned
    /// for a frame, would wait forever.)
    fn comes_due(&mut self, cfg: &Config) -> bool {
        if cfg.errs(Mutation::KeepCredit) {
            return false;
        }
        let limit = self.announced + self.window - FIRST_CREDIT;
        let low = limit.saturating_sub(self.seen) < self.window / 2;
        let due = low && self.given > self.announced && !self.due;
        self.due |= due;
        due
    }

    /// Marks a lost CREDIT frame as due again; false if one was due anyway.
    pub fn repeat(&mut self) -> bool {
        !core::mem::replace(&mut self.due, true)
    }

    /// Notes that the CREDIT frame leaves.
    pub fn announced(&mut self) {
        self.announced = self.given;
        self.due = false;
    }
}

/// The credit windows of all peers together, which fit the bound on unexpected memory.
#[derive(Debug, Default)]
pub struct PromisedCredit {
    bytes: u64,
}

impl PromisedCredit {
    /// Sets a peer's window at first contact.
    pub fn open(&mut self, credit: &mut Credit, cfg: &Config) {
        credit.window = cfg.credit_window(self.bytes);
        self.bytes += credit.window;
    }

    /// Raises the window of a peer that has used more than half of it, if there is memory. Returns
    /// whether it did: the peer must then be told.
    pub fn grow(&mut self, credit: &mut Credit, cfg: &Config) -> bool {
        if !credit.is_window_half_unread() || cfg.errs(Mutation::KeepCredit) {
            return false;
        }
        let more = cfg.credit_growth(credit.window, self.bytes);
        credit.window += more;
        credit.due |= more > 0;
        self.bytes += more;
        more > 0
    }

    /// Gives back the window of a peer that is gone.
    pub fn close(&mut self, credit: &Credit) {
        self.bytes -= credit.window;
    }
}

impl fmt::Display for Credit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "credit used {}/{}", self.used, self.limit)?;
        write!(out, " given {} told {}", self.given, self.announced)?;
        write!(out, " seen {}", self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(cfg: &Config) -> (Credit, PromisedCredit) {
        let (mut credit, mut promised) = (Credit::default(), PromisedCredit::default());
        promised.open(&mut credit, cfg);
        (credit, promised)
    }

    #[test]
    fn a_credit_frame_is_due_once_half_of_the_window_is_used_and_some_is_free_again() {
        let cfg = Config::default();
        let (mut credit, _) = opened(&cfg);
        let most = credit.window / 2 + 1;
        assert!(!credit.see(most, &cfg), "nothing to return yet");
        assert!(credit.give(most, &cfg), "newly due");
        assert!(!credit.give(1, &cfg), "due already");
        assert_eq!(credit.granted(), credit.window + most + 1);
        credit.announced();
        assert!(!credit.is_due());
        assert!(credit.repeat() && !credit.repeat());
    }

    #[test]
    fn a_window_doubles_while_all_windows_fit_half_of_the_bound() {
        let cfg = Config::default();
        let (mut credit, mut promised) = opened(&cfg);
        assert!(!promised.grow(&mut credit, &cfg), "unused");
        let first = credit.window;
        let mut grown = 0;
        credit.see(cfg.unexpected_bytes, &cfg);
        while promised.grow(&mut credit, &cfg) {
            grown += 1;
        }
        assert!(grown > 0 && credit.window == first << grown);
        assert!(2 * credit.window > cfg.unexpected_bytes / 4);
        promised.close(&credit);
        assert_eq!(promised.bytes, 0);
    }

    #[test]
    fn requests_keep_a_reserve_that_messages_leave() {
        let mut credit = Credit::default();
        let spare = FIRST_CREDIT - REQUEST_RESERVE - MESSAGE_OVERHEAD;
        assert!(credit.allows(spare) && !credit.allows(spare + 1));
        credit.spend(Credit::cost(spare));
        assert!(credit.covers(REQUEST_RESERVE) && !credit.covers(REQUEST_RESERVE + 1));
        credit.raise(0);
        assert!(
            credit.covers(REQUEST_RESERVE),
            "an older limit changes nothing"
        );
    }
}
