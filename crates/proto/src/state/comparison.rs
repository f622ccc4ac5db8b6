//! A comparison of a silent path with reference paths: its two rounds, and how it ends.

use crate::state::congestion::CWND_FLOOR;
use core::num::NonZeroU64;

/// Least length of a comparison's second round. A peer that answers on one rail has read its other
/// rails by then: it polls every socket within tens of microseconds.
pub(crate) const COMPARISON_NS: u64 = 1_000_000;

/// A running comparison of a path with reference paths.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// When this round's probes left.
    started_ns: u64,
    /// When a reference path answered a packet sent after the start.
    answered_ns: Option<NonZeroU64>,
    /// Another round was granted, since this process or the peer was descheduled.
    extended: bool,
    /// Second round. The first round shows that the peer runs, the second that this path is silent:
    /// a peer that has just been rescheduled reads one socket before the other.
    second: bool,
    /// Written bytes (past packets) were in flight at the start.
    written: bool,
    /// The peer may write a long part of a message on the path.
    expects: bool,
    /// Bytes received on the path when this round began, wrapping.
    came: u32,
    /// Bytes that may still arrive on the path before the answer does.
    before: u32,
}

/// Effect of a reference path's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The answer is to a packet from before this round.
    Old,
    /// The second round is to begin.
    NextRound,
    /// The path may lose.
    Noted,
}

/// State of a comparison at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Open,
    /// No reference path answered either.
    Draw,
    /// Reference paths answered in the second round, at this time for the first time.
    Silent {
        answered_ns: u64,
    },
}

impl Comparison {
    /// A comparison that begins now. `written`: written bytes are in flight; `expects`: the peer
    /// may write on the path; `received`: bytes received on the path so far.
    pub(crate) fn new(now: u64, written: bool, expects: bool, received: u64) -> Comparison {
        Comparison {
            started_ns: now,
            answered_ns: None,
            extended: false,
            second: false,
            written,
            expects,
            came: received as u32,
            before: 2 * CWND_FLOOR as u32,
        }
    }

    /// The second round, which begins like `new`, for the same written bytes.
    pub(crate) fn second_round(&self, new: Comparison) -> Comparison {
        Comparison {
            second: true,
            written: self.written,
            ..new
        }
    }

    pub(crate) fn holds_written(&self) -> bool {
        self.written
    }

    pub(crate) fn expects(&self) -> bool {
        self.expects
    }

    /// For how long this round has lasted.
    pub(crate) fn lasted_ns(&self, now: u64) -> u64 {
        now - self.started_ns
    }

    /// Handles an ack, on a reference path, of a packet sent at `sent_ns`. `hasty`: one round is
    /// enough (a mutation).
    pub(crate) fn on_reference(&mut self, now: u64, sent_ns: u64, hasty: bool) -> Answer {
        if sent_ns < self.started_ns {
            return Answer::Old;
        }
        if !self.second && !hasty {
            return Answer::NextRound;
        }
        self.second = true;
        // The timer decides only after every rail was read: the path's own answer may be in the
        // next socket.
        self.answered_ns = self.answered_ns.or(NonZeroU64::new(now));
        Answer::Noted
    }

    /// When a round of this length may be decided at the earliest, and when it ends without a
    /// result.
    pub(crate) fn ends(&self, lossy: bool, round_ns: u64) -> (u64, u64) {
        let started = self.started_ns;
        let answered = self.answered_ns.map_or(0, NonZeroU64::get);
        let verdict = match lossy {
            true => started.max(answered) + round_ns,
            // The reference answer shows that the peer ran during the rail's whole round.
            false => (started + round_ns).max(answered + COMPARISON_NS),
        };
        (verdict, started + 10 * round_ns)
    }

    /// The state at a time, given when the round ends.
    pub(crate) fn outcome(&self, now: u64, (verdict, draw): (u64, u64)) -> Outcome {
        match self.answered_ns.filter(|_| self.second && now >= verdict) {
            Some(answered) => Outcome::Silent {
                answered_ns: answered.get(),
            },
            None if now >= draw => Outcome::Draw,
            None => Outcome::Open,
        }
    }

    /// Grants one more round, at most once, because this process or the peer was descheduled.
    /// Returns whether it did.
    pub(crate) fn grant_grace(&mut self, now: u64, lossy: bool) -> bool {
        if self.extended {
            return false;
        }
        self.extended = true;
        self.answered_ns = NonZeroU64::new(now).filter(|_| lossy);
        true
    }

    /// Bytes that arrived on the path in this round; `received`: bytes received in all.
    pub(crate) fn arrived(&self, received: u64) -> u32 {
        (received as u32).wrapping_sub(self.came)
    }

    /// Another round, because data of the peer still arrives on the path; `None` after two windows
    /// of data.
    pub(crate) fn more_data(&self, now: u64, received: u64) -> Option<Comparison> {
        let bytes = self.arrived(received);
        (bytes < self.before).then(|| Comparison {
            started_ns: now,
            answered_ns: NonZeroU64::new(now),
            came: received as u32,
            before: self.before - bytes,
            ..*self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_path_is_silent_after_two_rounds_in_which_others_answered() {
        let mut first = Comparison::new(MS, false, false, 0);
        assert_eq!(first.on_reference(2 * MS, 0, false), Answer::Old);
        assert_eq!(first.on_reference(2 * MS, MS, false), Answer::NextRound);
        let mut second = first.second_round(Comparison::new(2 * MS, true, false, 0));
        assert!(!second.holds_written(), "of the first round");
        assert_eq!(second.on_reference(3 * MS, 2 * MS, false), Answer::Noted);
        let ends = second.ends(true, MS);
        assert_eq!(ends, (4 * MS, 12 * MS));
        assert_eq!(second.outcome(4 * MS - 1, ends), Outcome::Open);
        let silent = Outcome::Silent {
            answered_ns: 3 * MS,
        };
        assert_eq!(second.outcome(4 * MS, ends), silent);
        assert_eq!(first.outcome(12 * MS, first.ends(true, MS)), Outcome::Draw);
    }

    #[test]
    fn a_reliable_path_has_its_whole_round_after_the_start() {
        let mut path = Comparison::new(MS, false, false, 0);
        path.on_reference(30 * MS, MS, true);
        assert_eq!(path.ends(false, 10 * MS), (31 * MS, 101 * MS));
    }

    #[test]
    fn grace_is_granted_once() {
        let mut path = Comparison::new(MS, false, false, 0);
        assert!(path.grant_grace(2 * MS, true));
        assert_eq!(path.ends(true, MS).0, 3 * MS);
        assert!(!path.grant_grace(9 * MS, true));
        assert_eq!(path.ends(true, MS).0, 3 * MS);
    }

    #[test]
    fn arriving_data_prolongs_it_up_to_two_windows() {
        let path = Comparison::new(MS, false, false, u64::from(u32::MAX));
        let bytes = CWND_FLOOR + 1;
        let received = u64::from(u32::MAX) + bytes;
        assert_eq!(u64::from(path.arrived(received)), bytes);
        let more = path.more_data(2 * MS, received).expect("one window");
        assert_eq!(more.lasted_ns(3 * MS), MS);
        assert!(more.more_data(3 * MS, received + bytes).is_none());
    }
}
