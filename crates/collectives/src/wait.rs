//! How a rank waits for a broadcast: by looking again and again where it has a processor of its
//! own, else by sleeping until something comes.

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
/// After such an offer this many waits are sleeps, each after a few looks: processes that offer
/// the processor in a loop are as much in each other's way as those that do not.
const SLEEPS: u32 = 16;
/// Looks before such a sleep: what comes soon is there without a change of processes.
const LOOKS_BEFORE_SLEEP: u32 = 8;

/// Sleeps that are due in this process.
static SLEEPS_DUE: AtomicU32 = AtomicU32::new(0);

/// One rank's wait for one broadcast.
pub struct Wait<'a> {
    mpi: &'a Mpi,
    provider: &'a Provider,
    looks: u32,
    /// Looks since the last sleep.
    fresh: u32,
    since: Instant,
}

impl<'a> Wait<'a> {
    pub fn new(mpi: &'a Mpi, provider: &'a Provider) -> Wait<'a> {
        Wait {
            mpi,
            provider,
            looks: 0,
            fresh: 0,
            since: Instant::now(),
        }
    }

    /// Makes progress, and gives the processor away where others may want it.
    pub fn look(&mut self) {
        (self.provider.progress)();
        self.looks = self.looks.wrapping_add(1);
        self.fresh += 1;
        if self.looks % LOOKS == 0 {
            self.mpi.progress();
        }
        let due = SLEEPS_DUE.load(Ordering::Relaxed);
        if due > 0 {
            if self.fresh >= LOOKS_BEFORE_SLEEP {
                SLEEPS_DUE.store(due - 1, Ordering::Relaxed);
                (self.provider.doze)();
                self.mpi.progress();
                self.fresh = 0;
            }
        } else if self.fresh % LOOKS_BEFORE_SLEEP == 0 && self.since.elapsed() >= SPIN {
            self.offer();
        }
    }

    fn offer(&mut self) {
        let before = Instant::now();
        std::thread::yield_now();
        self.since = Instant::now();
        if self.since - before >= SHARED {
            SLEEPS_DUE.store(SLEEPS, Ordering::Relaxed);
        }
    }
}
