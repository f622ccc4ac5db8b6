//! The session with a peer: what HELLO agreed on, how it ends, and signs of life.

use crate::state::absences::Verdicts;
use alloc::vec::Vec;
use marline_wire::{RailAddr, FIRST_ALGORITHM, SLOT_UNKNOWN};

/// Why a conversation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Nothing was heard, or nothing of ours got through.
    Silent,
    /// Its host says that the process is gone.
    Refused,
    /// Something was lost that nobody can send again.
    Lost,
}

/// The agreement with a peer, and whether it still holds.
#[derive(Debug)]
pub struct Session {
    pub remote_slot: u32,
    /// Known once its HELLO came.
    pub epoch: Option<u32>,
    pub algorithm: u8,
    /// The algorithms that the peer can check, bit n for number n; known since its HELLO.
    pub algorithms: u32,
    pub hello_acked: bool,
    /// The newest revision of its rails that the peer told.
    pub revision: u32,
    /// All rails of the peer as it told them last, where more may come, here or there.
    pub rails: Vec<RailAddr>,
    /// Something was lost that nobody can send again: it ends at the next look at the time.
    pub lost: bool,
    pub dead: bool,
    pub closed: bool,
    /// It is the endpoint itself: nothing is sent, nothing is waited for.
    pub own: bool,
}

impl Default for Session {
    fn default() -> Session {
        Session {
            remote_slot: SLOT_UNKNOWN,
            epoch: None,
            algorithm: FIRST_ALGORITHM,
            algorithms: 0,
            hello_acked: false,
            revision: 0,
            rails: Vec::new(),
            lost: false,
            dead: false,
            closed: false,
            own: false,
        }
    }
}

impl Session {
    /// The rail of the peer of this index, if it is kept here.
    pub fn rail(&self, index: usize) -> Option<RailAddr> {
        let mut rails = self.rails.iter();
        rails.find(|rail| rail.index as usize == index).copied()
    }

    /// The peer is dead or has said BYE.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.dead || self.closed
    }
}

/// BYEs: how many are still to be said, how many were said, and whether the peer has heard one.
#[derive(Debug, Default)]
pub struct Farewell {
    pub due: u16,
    pub said: u16,
    pub heard: bool,
}

/// Signs of life of a peer, times in nanoseconds.
#[derive(Debug, Default)]
pub struct Liveness {
    pub heard_ns: u64,
    /// Since when it owes an answer.
    pub owed_since: Option<u64>,
    /// Since when nothing of ours was acknowledged, though something waits for that.
    pub unanswered_since: Option<u64>,
    /// Since when nothing was delivered, where that is in question; else 0. Its end is to be told.
    pub gap_from: u64,
    pub gap_told: bool,
    /// So often it was waited for longer, of what it owes since then.
    pub more_time_since_ns: u64,
    pub more_time: u8,
    pub pinged_ns: u64,
    /// When it was last heard by packets that were read as they came, when it was heard after a
    /// silence, and how long that was.
    pub lively_ns: u64,
    pub woke_ns: u64,
    pub silent_ns: u64,
    pub(crate) verdicts: Verdicts,
}

/// Whoever is waited for longer than the time after which a silent peer is dead is so by this part
/// of it each time.
pub(crate) const MORE_TIME: u8 = 8;

impl Liveness {
    /// How often what is owed since then was waited for longer.
    pub fn given(&self, since: u64) -> u8 {
        match self.more_time_since_ns == since {
            true => self.more_time,
            false => 0,
        }
    }

    /// How long it had been silent by then, though it owed an answer; 0 if it was heard later.
    pub fn silent_until(&self, at_ns: u64) -> u64 {
        let since = self.owed_since.unwrap_or(u64::MAX);
        at_ns.saturating_sub(since)
    }

    /// When it is judged whether the peer is dead, which may be silent for `timeout_ns`.
    pub fn judged_at(&self, timeout_ns: u64) -> Option<u64> {
        let since = self.owed_since?;
        let more_ns = timeout_ns / MORE_TIME as u64 * self.given(since) as u64;
        Some(since + timeout_ns + more_ns)
    }
}

/// Contact with a peer by any path at all.
#[derive(Debug, Default)]
pub struct Contact {
    /// Since when no path is known to carry, unless one is healthy again, in units of
    /// [`LOST_UNIT_NS`]; 0: one is.
    lost: u32,
    /// Some path is to say once more what another has said (`Path::echo`).
    pub echoes: bool,
    /// When the peer, which had lost contact, was last answered on all paths; where it asked.
    pub answered_ns: u64,
    pub asked_at: u16,
}

/// Unit of the time since which contact is lost.
const LOST_UNIT_NS: u64 = 1 << 20;

impl Contact {
    /// No path was known to carry when it was looked last.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost != 0
    }

    /// No path is known to carry from now on.
    pub fn lose(&mut self, now: u64) {
        self.lost = ((now / LOST_UNIT_NS) as u32).max(1);
    }

    /// A path carries.
    pub fn regain(&mut self) {
        self.lost = 0;
    }

    /// For how long contact has been lost, in ns.
    pub fn lost_for_ns(&self, now: u64) -> u64 {
        let units = ((now / LOST_UNIT_NS) as u32).wrapping_sub(self.lost);
        u64::from(units) * LOST_UNIT_NS
    }
}

/// Refusals by the peer's host since the peer was heard, of paths that have worked.
#[derive(Debug, Default)]
pub struct Refusals {
    count: u32,
    /// When the first came.
    since_ns: u64,
}

impl Refusals {
    /// The peer was heard.
    #[inline]
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// One came; whether it is the first.
    pub fn note(&mut self, now: u64) -> bool {
        let first = self.count == 0;
        if first {
            self.since_ns = now;
        }
        self.count += 1;
        first
    }

    /// Returns whether there are `least`, over at least so long.
    pub fn last(&self, now: u64, least: u32, time_ns: u64) -> bool {
        self.count >= least && now - self.since_ns >= time_ns
    }
}
