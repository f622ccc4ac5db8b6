//! How a rank waits for a broadcast: by looking again and again; where it has no processor of its
//! own, it offers the one that it has to others after each look, or sleeps for a millisecond if
//! the broadcast is long (docs/decisions/0223).

use crate::mpi::Mpi;
use crate::provider::Provider;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The MPI makes progress with what else the program has begun after so many looks.
const LOOKS: u32 = 32;
/// Time after which the processor is offered to others, at the latest: the wait that one of them
/// has on account of this one. The offer takes a hundredth of it.
const SPIN: Duration = Duration::from_micros(50);
/// An offer that took so long let somebody else run.
const SHARED: Duration = Duration::from_micros(10);
/// After such an offer this many waits follow, one after each look: those that wait are in the way
/// of those that have what they wait for.
const OFFERS: u32 = 1_024;
/// Broadcasts of so many bytes are waited for asleep: ranks that offer the processor in a loop are
/// in the way, too, and a sleep's end is late by a share of such a broadcast only.
const DOZE_FROM: usize = 512 << 10;
/// Looks between two readings of the clock, or before a sleep: what comes soon is there without a
/// change of processes.
const LOOKS_BETWEEN: u32 = 8;

/// Offers that are due in this process.
static OFFERS_DUE: AtomicU32 = AtomicU32::new(0);

/// One rank's wait for one broadcast.
pub struct Wait<'a> {
    mpi: &'a Mpi,
    provider: &'a Provider,
    long: bool,
    looks: u32,
    since: Instant,
}

impl<'a> Wait<'a> {
    /// The broadcast has `len` bytes.
    pub fn new(mpi: &'a Mpi, provider: &'a Provider, len: usize) -> Wait<'a> {
        Wait {
            mpi,
            provider,
            long: len >= DOZE_FROM,
            looks: 0,
            since: Instant::now(),
        }
    }

    /// Makes progress, and gives the processor away where others may want it.
    pub fn look(&mut self) {
        (self.provider.progress)();
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS == 0 {
            self.mpi.progress();
        }
        let due = OFFERS_DUE.load(Ordering::Relaxed);
        if due > 0 && self.long && self.looks % LOOKS_BETWEEN == 0 {
            OFFERS_DUE.store(due - 1, Ordering::Relaxed);
            (self.provider.doze)();
            self.mpi.progress();
        } else if due > 0 && !self.long {
            OFFERS_DUE.store(due - 1, Ordering::Relaxed);
            self.offer();
        } else if self.looks % LOOKS_BETWEEN == 0 && self.since.elapsed() >= SPIN {
            self.offer();
        }
    }

    fn offer(&mut self) {
        let before = Instant::now();
        std::thread::yield_now();
        self.since = Instant::now();
        if self.since - before >= SHARED {
            OFFERS_DUE.store(OFFERS, Ordering::Relaxed);
        }
    }
}
