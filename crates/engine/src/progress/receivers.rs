//! The receiving halves of the rails, and what is known of how busy they are. They have a lock of
//! their own, so that the system call of an empty poll runs outside that of the engine.

use crate::progress::absence::Absences;
use crate::progress::cpu_yield::YieldPolicy;
use marline_rails::{Armed, RailRx};

/// While packets come often, a poll that finds nothing looks again before it returns: MPICH offers
/// the processor after each (0.5 us), and what comes meanwhile waits for that.
const TRIES: u32 = 7;
/// Packets come often: at least one in sixteen polls, over the last hundred or so. Where they come
/// from shared memory instead, polls of the rails are not to take longer than they must.
const BUSY_STEP: u32 = 16;
const BUSY_MIN: u32 = 32;
const BUSY_MAX: u32 = 128;

/// The receiving halves, beside the engine's lock.
pub(crate) struct Receivers<R> {
    pub(crate) halves: Vec<R>,
    /// Rails that had something at their last poll, bit n for rail n.
    pub(crate) hot: u32,
    pub(crate) last: usize,
    pub(crate) turn: u32,
    /// Bytes of a direct write came.
    pub(crate) landed: bool,
    /// When everything was polled last.
    pub(crate) all_ns: u64,
    pub(crate) offers: YieldPolicy,
    /// How busy the rails were lately: up with each poll that found something, down with others.
    pub(crate) busy: u32,
    pub(crate) absences: Absences,
    /// Threads that sleep until a packet comes. What another thread takes does not end their sleep.
    pub(crate) nappers: u32,
    /// The event that ends their sleep was raised.
    pub(crate) called: bool,
    /// Whoever polls now waits for a broadcast.
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
            offers: YieldPolicy::new(),
            busy: 0,
            absences: Absences::default(),
            nappers: 0,
            called: false,
            waits: false,
        }
    }

    /// Notes whether the last poll of a rail found something.
    #[inline]
    pub(crate) fn note(&mut self, rail: usize, found: bool) {
        let bit = 1 << rail;
        self.hot = (self.hot & !bit) | if found { bit } else { 0 };
    }

    /// Has the rails' descriptors tell of what comes; whether to look once more before sleeping.
    pub(crate) fn arm(&mut self) -> bool {
        let mut again = false;
        for half in &mut self.halves {
            again |= half.arm() == Armed::LookAgain;
        }
        again
    }

    /// The next poll is of all rails.
    pub(crate) fn want_all(&mut self) {
        self.turn = u32::MAX;
    }

    /// How often a poll that found nothing looks again. Not where others wanted the processor.
    pub(crate) fn tries(&self) -> u32 {
        if self.busy >= BUSY_MIN && self.offers.is_alone() {
            TRIES
        } else {
            0
        }
    }

    /// A poll found so many datagrams.
    pub(crate) fn learn(&mut self, taken: usize) {
        self.busy = match taken {
            0 => self.busy.saturating_sub(1),
            _ => (self.busy + BUSY_STEP).min(BUSY_MAX),
        };
    }
}
