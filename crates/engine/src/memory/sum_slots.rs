//! Slots in which the engine posts memory to be summed by workers. The engine never waits for a
//! worker to begin a job: it withdraws the job and computes the sum itself. `tests/loom.rs` checks
//! all interleavings of this file.

use crate::platform::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Number of jobs at a time, enough for a few long messages.
pub(crate) const SLOTS: usize = 16;

/// The engine may fill the slot.
const FREE: u32 = 0;
/// A worker may take the job, and the engine may take it back.
const READY: u32 = 1;
/// A worker reads the memory.
const TAKEN: u32 = 2;
/// The sum is complete; the engine may take it.
const DONE: u32 = 3;
/// The worker stopped without a sum; the engine may take the slot back.
const FAILED: u32 = 4;

/// Memory to sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Address of the memory.
    pub(crate) base: u64,
    /// Length of the memory in bytes.
    pub(crate) len: u64,
    /// Number of the algorithm.
    pub(crate) algorithm: u64,
    /// Seed of the sum.
    pub(crate) seed: u64,
}

/// State in which the engine takes a slot back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The sum; the slot is free again.
    Sum(u64),
    /// There is no sum, and no worker reads the memory; the slot is free again.
    Nothing,
    /// A worker reads the memory.
    Busy,
}

/// A job, in separate cache lines.
#[repr(align(128))]
struct Slot {
    state: AtomicU32,
    base: AtomicU64,
    len: AtomicU64,
    algorithm: AtomicU64,
    seed: AtomicU64,
    sum: AtomicU64,
}

/// Shared by an engine and its workers. The engine holds its lock for every call of its side.
pub(crate) struct SumSlots {
    slots: [Slot; SLOTS],
    /// Number of workers that scan the slots.
    hands: AtomicU32,
    /// Number of workers that sleep until `post` wakes them.
    asleep: AtomicU32,
    /// Not 0 once the engine has had memory to sum.
    wanted: AtomicU32,
}

/// The engine's side.
impl SumSlots {
    /// Creates free slots without workers.
    pub(crate) fn new() -> SumSlots {
        let slot = || Slot {
            state: AtomicU32::new(FREE),
            base: AtomicU64::new(0),
            len: AtomicU64::new(0),
            algorithm: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        };
        SumSlots {
            slots: std::array::from_fn(|_| slot()),
            hands: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
        }
    }

    /// True if some worker scans the slots.
    #[inline]
    pub(crate) fn have_workers(&self) -> bool {
        self.hands.load(Ordering::Relaxed) > 0
    }

    /// Notifies the manager of the workers that there are jobs.
    #[inline]
    pub(crate) fn want(&self) {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            self.wanted.store(1, Ordering::Relaxed);
        }
    }

    /// Posts a job in a free slot; `true`: all workers may be asleep, so that one must be woken.
    pub(crate) fn post(&self, at: usize, job: &Job) -> bool {
        let slot = &self.slots[at];
        slot.base.store(job.base, Ordering::Relaxed);
        slot.len.store(job.len, Ordering::Relaxed);
        slot.algorithm.store(job.algorithm, Ordering::Relaxed);
        slot.seed.store(job.seed, Ordering::Relaxed);
        slot.state.store(READY, Ordering::Release);
        // Pairs with the fence in `may_sleep`: this thread sees the sleeper, or the sleeper sees
        // the job.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) > 0
    }

    /// True if a worker executes a posted job or, with `may_begin`, may still begin it.
    pub(crate) fn is_under_way(&self, at: usize, may_begin: bool) -> bool {
        match self.slots[at].state.load(Ordering::Relaxed) {
            TAKEN => true,
            READY => may_begin,
            _ => false,
        }
    }

    /// Takes a posted slot back.
    pub(crate) fn take(&self, at: usize) -> Found {
        let slot = &self.slots[at];
        let (success, failure) = (Ordering::Relaxed, Ordering::Acquire);
        match slot.state.compare_exchange(READY, FREE, success, failure) {
            Ok(_) => return Found::Nothing,
            Err(TAKEN) => return Found::Busy,
            Err(DONE) => {}
            Err(_) => {
                slot.state.store(FREE, Ordering::Relaxed);
                return Found::Nothing;
            }
        }
        let sum = slot.sum.load(Ordering::Relaxed);
        slot.state.store(FREE, Ordering::Relaxed);
        Found::Sum(sum)
    }
}

/// The side of workers and their manager.
impl SumSlots {
    /// True if the engine has had memory to sum since the last call.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.swap(0, Ordering::Relaxed) != 0
    }

    /// Notes that a worker begins or stops scanning the slots.
    pub(crate) fn on_duty(&self, on: bool) {
        match on {
            true => self.hands.fetch_add(1, Ordering::Relaxed),
            false => self.hands.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Executes one job by `sum`, if there is one, and returns its length. The slot returns to the
    /// engine even if `sum` panics.
    pub(crate) fn work(&self, sum: impl FnOnce(&Job) -> u64) -> Option<u64> {
        let ready = |slot: &&Slot| {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            slot.state.load(Ordering::Relaxed) == READY
                && (slot.state)
                    .compare_exchange(READY, TAKEN, success, failure)
                    .is_ok()
        };
        let slot = self.slots.iter().find(ready)?;
        let job = Job {
            base: slot.base.load(Ordering::Relaxed),
            len: slot.len.load(Ordering::Relaxed),
            algorithm: slot.algorithm.load(Ordering::Relaxed),
            seed: slot.seed.load(Ordering::Relaxed),
        };
        let mut end = End(slot, FAILED);
        slot.sum.store(sum(&job), Ordering::Relaxed);
        end.1 = DONE;
        drop(end);
        Some(job.len)
    }

    /// Announces a worker's sleep and returns whether it may sleep. [`SumSlots::awake`] follows in
    /// any case.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ready = |slot: &Slot| slot.state.load(Ordering::Relaxed) == READY;
        !self.slots.iter().any(ready)
    }

    /// Ends a worker's announced sleep.
    pub(crate) fn awake(&self) {
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a slot to the engine when dropped.
struct End<'a>(&'a Slot, u32);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.store(self.1, Ordering::Release);
    }
}
