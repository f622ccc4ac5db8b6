//! The receiving halves of the rails, and their recent activity. They have a lock of their own, so
//! that the system call of an empty poll runs outside the engine's lock.

use crate::progress::cpu_yield::YieldPolicy;
use crate::progress::poll_gap::PollGaps;
use marline_rails::{Armed, RailRx};

/// Additional polls per call while packets arrive often: MPICH yields after each empty call, and a
/// packet that arrives meanwhile waits for the yield to end.
const TRIES: u32 = 7;
/// Step of `busy`: packets count as arriving often if about one poll in sixteen of the last hundred
/// received some. If messages arrive in shared memory instead, polls of the rails should be short.
const BUSY_STEP: u32 = 16;
const BUSY_MIN: u32 = 32;
const BUSY_MAX: u32 = 128;

/// Rails other than the one heard last, and sockets on which no packets are expected, are polled
/// only once in this many polls or after a gap, because each socket costs a system call.
const OTHERS_EVERY: u32 = 16;
/// While a broadcast is awaited on a rail, one poll in this many covers the rail's other sockets as
/// well as its group sockets.
const BESIDE_GROUPS_EVERY: u32 = 4;

/// In a set of sockets, bit n stands for the sockets of rail n on which packets are expected, and
/// this bit + n for the rail's other sockets.
pub(crate) const OTHER_SOCKETS: usize = u32::BITS as usize;

/// A pass over the sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// All sockets that are due, for a poll of the application.
    Poll,
    /// All sockets that are due, for the progress thread.
    Thread,
    /// The sockets of one bit, between two sends.
    Only(usize),
}

/// The receiving halves, with a lock of their own beside the engine's.
pub(crate) struct Receivers<R> {
    pub(crate) halves: Vec<R>,
    /// Rails whose last poll received packets, bit n for rail n.
    pub(crate) hot: u32,
    pub(crate) last: usize,
    pub(crate) turn: u32,
    /// True if bytes of a direct write arrived.
    pub(crate) landed: bool,
    /// Time of the last poll of all rails.
    pub(crate) all_ns: u64,
    pub(crate) yields: YieldPolicy,
    /// Recent activity: raised by polls that received packets, lowered by other polls.
    pub(crate) busy: u32,
    pub(crate) gaps: PollGaps,
    /// Number of threads that sleep until a packet arrives. Packets that another thread receives do
    /// not end their sleep.
    pub(crate) sleepers: u32,
    /// True if the event that ends the sleep of these threads was raised.
    pub(crate) called: bool,
    /// True while the polling caller waits for a broadcast.
    pub(crate) waits: bool,
}

impl<R: RailRx> Receivers<R> {
    pub(crate) fn new(halves: Vec<R>) -> Receivers<R> {
        Receivers {
            hot: 0,
            halves,
            last: 0,
            turn: 0,
            landed: false,
            all_ns: 0,
            yields: YieldPolicy::new(),
            busy: 0,
            gaps: PollGaps::default(),
            sleepers: 0,
            called: false,
            waits: false,
        }
    }

    /// Counts a pass over the sockets. Returns whether it covers all of them.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.polled_all()
    }

    /// True if the last pass covered all sockets.
    #[inline]
    pub(crate) fn polled_all(&self) -> bool {
        self.turn % OTHERS_EVERY == 0
    }

    /// Begins a pass. Returns its sockets, and the rails of which it covers only group sockets.
    /// `awaited`: rails on which a broadcast is awaited.
    #[inline]
    pub(crate) fn due(&mut self, pass: Pass, awaited: u32) -> (u64, u32) {
        if let Pass::Only(at) = pass {
            return (1 << at, 0);
        }
        let every = (1 << self.halves.len()) - 1;
        let due = match self.next_turn() {
            true => every | every << OTHER_SOCKETS,
            false => u64::from(self.hot | awaited | 1 << self.last) & every,
        };
        let beside = self.turn % BESIDE_GROUPS_EVERY == 0;
        let groups = match self.waits && pass == Pass::Poll && !beside {
            true => awaited,
            false => 0,
        };
        (due, groups)
    }

    /// The first sockets of a pass: those of the rail heard last, if the pass covers them.
    #[inline]
    pub(crate) fn first(&self, due: u64) -> usize {
        match due >> self.last & 1 {
            0 => due.trailing_zeros() as usize,
            _ => self.last,
        }
    }

    /// Ends a pass with `taken` datagrams.
    #[inline]
    pub(crate) fn end(&mut self, pass: Pass, taken: usize) {
        if let Pass::Only(_) = pass {
            return;
        }
        if self.hot != 0 && self.hot >> self.last & 1 == 0 {
            self.last = self.hot.trailing_zeros() as usize;
        }
        self.yields.count(taken);
    }

    /// Notes whether the last poll of a rail received packets.
    #[inline]
    pub(crate) fn note(&mut self, rail: usize, found: bool) {
        let bit = 1 << rail;
        self.hot = (self.hot & !bit) | if found { bit } else { 0 };
    }

    /// Arms the rails' descriptors; returns whether to poll once more before sleeping.
    pub(crate) fn arm(&mut self) -> bool {
        let mut again = false;
        for half in &mut self.halves {
            again |= half.arm() == Armed::LookAgain;
        }
        again
    }

    /// Makes the next poll one of all rails.
    pub(crate) fn want_all(&mut self) {
        self.turn = u32::MAX;
    }

    /// Number of additional polls after an empty one; 0 if other processes wanted the core.
    pub(crate) fn tries(&self) -> u32 {
        if self.busy >= BUSY_MIN && self.yields.is_alone() {
            TRIES
        } else {
            0
        }
    }

    /// Learns from a poll with `taken` datagrams.
    pub(crate) fn learn(&mut self, taken: usize) {
        self.busy = match taken {
            0 => self.busy.saturating_sub(1),
            _ => (self.busy + BUSY_STEP).min(BUSY_MAX),
        };
    }
}
