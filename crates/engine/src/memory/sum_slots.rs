//! Slots in which the engine leaves memory to be summed, and from which workers take it. The engine
//! never waits for a worker: what none has begun it takes back, and sums by itself.
//! `tests/loom.rs` tries all orders of this file's steps.

use crate::platform::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Jobs at a time: those of a few long messages.
pub(crate) const SLOTS: usize = 16;

/// Nobody's: the engine may fill it.
const FREE: u32 = 0;
/// A worker may take it, and the engine may take it back.
const READY: u32 = 1;
/// A worker reads the memory.
const TAKEN: u32 = 2;
/// The sum is there; the engine may take it.
const DONE: u32 = 3;
/// The worker ended without a sum; the engine may take the slot.
const FAILED: u32 = 4;

/// Memory to be summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its address.
    pub(crate) base: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// Number of the algorithm.
    pub(crate) algorithm: u64,
    /// Seed of the sum.
    pub(crate) seed: u64,
}

/// The state of a slot that the engine wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The sum. The slot is free again.
    Sum(u64),
    /// No sum, and no worker reads the memory. The slot is free again.
    Nothing,
    /// A worker reads the memory.
    Busy,
}

/// One job, in cache lines of its own.
#[repr(align(128))]
struct Slot {
    state: AtomicU32,
    base: AtomicU64,
    len: AtomicU64,
    algorithm: AtomicU64,
    seed: AtomicU64,
    sum: AtomicU64,
}

/// Shared by one engine, whose lock is held at every call of its side, and its workers.
pub(crate) struct SumSlots {
    slots: [Slot; SLOTS],
    /// Workers that look at the slots.
    hands: AtomicU32,
    /// Workers that sleep until `post` calls them.
    asleep: AtomicU32,
    /// The engine has had something to sum.
    wanted: AtomicU32,
}

/// The engine's side.
impl SumSlots {
    /// Free slots, and no workers.
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

    /// Some worker looks at the slots.
    #[inline]
    pub(crate) fn have_workers(&self) -> bool {
        self.hands.load(Ordering::Relaxed) > 0
    }

    /// Tells the workers' keeper that there is something for them.
    #[inline]
    pub(crate) fn want(&self) {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            self.wanted.store(1, Ordering::Relaxed);
        }
    }

    /// Leaves a job in a free slot; `true`: all workers may be asleep, so that one is to be called.
    pub(crate) fn post(&self, at: usize, job: &Job) -> bool {
        let slot = &self.slots[at];
        slot.base.store(job.base, Ordering::Relaxed);
        slot.len.store(job.len, Ordering::Relaxed);
        slot.algorithm.store(job.algorithm, Ordering::Relaxed);
        slot.seed.store(job.seed, Ordering::Relaxed);
        slot.state.store(READY, Ordering::Release);
        // Pairs with the fence in `may_sleep`: we see who sleeps, or it sees the job.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a worker is at a job that was posted, or (`may_begin`) might still begin it.
    pub(crate) fn is_under_way(&self, at: usize, may_begin: bool) -> bool {
        match self.slots[at].state.load(Ordering::Relaxed) {
            TAKEN => true,
            READY => may_begin,
            _ => false,
        }
    }

    /// Wants a slot back that was posted.
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

/// The workers' side, and their keeper's.
impl SumSlots {
    /// The engine has had something to sum since this was asked last.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.swap(0, Ordering::Relaxed) != 0
    }

    /// A worker begins to look at the slots, or has ended to.
    pub(crate) fn on_duty(&self, on: bool) {
        match on {
            true => self.hands.fetch_add(1, Ordering::Relaxed),
            false => self.hands.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Does one job by `sum`, if there is one; its length. Whatever `sum` does, a panic included,
    /// the slot is the engine's again.
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

    /// Before a worker sleeps: whether it may. After the sleep (or none) comes [`SumSlots::awake`].
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ready = |slot: &Slot| slot.state.load(Ordering::Relaxed) == READY;
        !self.slots.iter().any(ready)
    }

    /// A worker does not sleep any more.
    pub(crate) fn awake(&self) {
        self.asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives a slot back to the engine when it goes.
struct End<'a>(&'a Slot, u32);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.store(self.1, Ordering::Release);
    }
}
