//! The session with a peer: what HELLO agreed on, how it ends, and signs of life.

use crate::base::config::Config;
use crate::base::evidence::Evidence;
use crate::state::absences::Verdicts;
use alloc::vec::Vec;
use marline_wire::{RailAddr, FIRST_ALGORITHM, SLOT_UNKNOWN};

/// Why a conversation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Nothing was heard, or nothing of ours got through.
    Silent,
    /// Its host refuses what is sent to it, and this is what that proves.
    Refused(Evidence),
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
    /// Its settings differ from ours: it is dead, and is told so by so many more packets.
    pub refused: bool,
    pub refusals_due: u16,
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
            refused: false,
            refusals_due: 0,
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
    /// Since when it owed an answer before all our rails to it were down, the last time; 0: never.
    waits_since_ns: u64,
    /// Since when all our rails to it are down; 0: one is up.
    pub cut_since_ns: u64,
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

/// A cut counts as silence of the peer once it has lasted for so many times the time after which a
/// silent peer is dead: a device that fails for good is to end the job at last.
const CUT_TIMEOUTS: u64 = 10;

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

    /// For how long by then nothing of ours was acknowledged, or it had been silent.
    pub fn deaf_until(&self, at_ns: u64) -> u64 {
        let unanswered = self.unanswered_since.unwrap_or(u64::MAX);
        self.silent_until(at_ns)
            .max(at_ns.saturating_sub(unanswered))
    }

    /// Since when it owes an answer, time in which all our rails to it were down included.
    pub fn waits_since(&self) -> Option<u64> {
        let earlier = Some(self.waits_since_ns).filter(|&at| at > 0 && at >= self.heard_ns);
        self.owed_since
            .map(|owed| earlier.map_or(owed, |at| at.min(owed)))
    }

    /// When it is judged whether the peer is dead.
    pub fn judged_at(&self, cfg: &Config) -> Option<u64> {
        let since = self.owed_since?;
        let timeout_ns = cfg.silence_ns();
        let at = since + timeout_ns + cfg.more_time_ns() * u64::from(self.given(since));
        match self.cut_since_ns {
            0 => Some(at),
            cut => Some(at.max(cut + CUT_TIMEOUTS * timeout_ns)),
        }
    }

    /// All our rails to the peer are down, or one is up: time in which they were is none of its
    /// silence.
    pub fn note_cut(&mut self, now: u64, cut: bool) {
        let since = self.cut_since_ns;
        self.cut_since_ns = match (cut, since) {
            (true, 0) => now.max(1),
            (true, since) => since,
            (false, _) => 0,
        };
        if cut || since == 0 {
            return;
        }
        self.waits_since_ns = self.waits_since().unwrap_or(0);
        let clocks = [&mut self.owed_since, &mut self.unanswered_since];
        for begun in clocks.into_iter().flatten() {
            *begun += now.saturating_sub(since.max(*begun));
        }
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
    /// When the first came, and the last.
    since_ns: u64,
    last_ns: u64,
    /// They were of packets, and of connections.
    pub packets: bool,
    pub connections: bool,
    /// When packets left that reached other processes at an address that refuses this one: the
    /// first of them since the refusals began, and the last; 0: none did.
    reached_ns: (u64, u64),
}

/// Refusals that come so far apart do not last: two hiccups of a firewall with a silent network in
/// between are no long one. (Linux lets one ICMP message a second go to a host, which may have many
/// processes.)
const APART_NS: u64 = 3_000_000_000;
/// Refusals of one process go on for so long after another at its address was reached, and that one
/// is reached again in the second half of it: a firewall that is switched on or off meanwhile
/// refuses, or passes, what is sent to both.
const ONE_PROCESS_NS: u64 = 400_000_000;

impl Refusals {
    /// The peer was heard.
    #[inline]
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// One came; whether it is the first.
    pub fn note(&mut self, now: u64) -> bool {
        let first = self.count == 0 || now.saturating_sub(self.last_ns) > APART_NS;
        if first {
            (self.count, self.since_ns) = (0, now);
            (self.packets, self.connections) = (false, false);
            self.reached_ns = (0, 0);
        }
        (self.count, self.last_ns) = (self.count + 1, now);
        first
    }

    /// Returns whether one of these came after the first of others.
    pub fn came_since(&self, others: &Refusals) -> bool {
        others.count > 0 && self.last_ns >= others.since_ns
    }

    /// A packet that left then has reached another process at an address that refuses this one.
    pub fn note_reached(&mut self, sent_ns: u64) {
        if self.count == 0 || sent_ns <= self.since_ns {
            return; // the host did not refuse yet
        }
        let (first, last) = self.reached_ns;
        self.reached_ns = match first {
            0 => (sent_ns, sent_ns),
            _ => (first, last.max(sent_ns)),
        };
    }

    /// Returns whether the host refuses this process and no other, as far as others were asked.
    pub fn are_of_one_process(&self, now: u64) -> bool {
        let (first, last) = self.reached_ns;
        let lasts = first > 0 && now.saturating_sub(first) >= ONE_PROCESS_NS;
        lasts && last - first >= ONE_PROCESS_NS / 2
    }

    /// For how long they have come.
    pub fn lasted_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.since_ns)
    }

    /// Returns whether there are `least`, over at least so long.
    pub fn last(&self, now: u64, least: u32, time_ns: u64) -> bool {
        self.count >= least && now - self.since_ns >= time_ns
    }
}
