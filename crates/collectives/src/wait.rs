//! The waiting loop of a broadcast: it polls. On an oversubscribed host it yields the processor
//! after each poll, or sleeps for a millisecond if the broadcast is long
//! (docs/design/multicast.md).

use crate::mpi::{Handle, Mpi};
use crate::provider::Provider;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Number of polls between two calls that let the MPI make progress with the program's other
/// operations.
const LOOKS: u32 = 32;
/// Number of polls between two questions to the MPI whether the communicator's calls still succeed:
/// about a millisecond.
const LOOKS_BROKEN: u32 = 1_024;
/// Longest time between two yields, which is the longest time for which this rank keeps another
/// process waiting. A yield takes a hundredth of it.
const SPIN: Duration = Duration::from_micros(50);
/// After a yield that let another process run, this many polls begin with a yield: otherwise
/// waiting ranks would delay the ranks that have work.
const YIELDS: u32 = 1_024;
/// Least length in bytes of broadcasts for which ranks wait by sleeping. Ranks that yield in a loop
/// disturb others too, and the late end of a sleep is a small part of such a broadcast's time.
const SLEEP_FROM_BYTES: usize = 512 << 10;
/// Number of due yields that a sleep replaces. After some sleeps a yield checks again if another
/// process wants the processor.
const SLEEP_COST: u32 = 64;
/// Polls between two clock readings, or before a sleep: data that arrives soon is found without a
/// context switch.
const LOOKS_BETWEEN: u32 = 8;

/// Yields due in this process.
static YIELDS_DUE: AtomicU32 = AtomicU32::new(0);

/// The reason why a rank stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The MPI's own call fails as well, and says why.
    Theirs,
    /// The call ends with this error.
    Code(c_int),
}

/// Actions of a waiting rank.
pub trait Around {
    /// Polls the engine's rails.
    fn look(&self);
    /// Lets the MPI make progress.
    fn progress_of_mpi(&self) -> Result<(), c_int>;
    /// True if the MPI's own collective calls fail: a rank that should acknowledge may have left.
    fn is_broken(&self) -> bool;
    /// Sleeps for at most a millisecond. Returns false if the sleep was refused because other ranks
    /// would wait for this one.
    fn sleep_briefly(&self) -> bool;
    /// Yields the processor. Returns whether another process ran.
    fn yield_cpu(&self) -> bool;
}

/// A wait within a call on a communicator; without a communicator, within calls on several.
impl Around for (&Mpi, &Provider, Option<Handle>) {
    fn look(&self) {
        (self.1.look)();
    }

    fn progress_of_mpi(&self) -> Result<(), c_int> {
        self.0.progress()
    }

    fn is_broken(&self) -> bool {
        self.2.is_some_and(|comm| self.0.is_broken(comm))
    }

    fn sleep_briefly(&self) -> bool {
        (self.1.sleep_briefly)() > 0
    }

    fn yield_cpu(&self) -> bool {
        (self.1.yield_cpu)() > 0
    }
}

/// The wait of one rank for one broadcast.
pub struct Wait<A> {
    around: A,
    long: bool,
    looks: u32,
    since: Instant,
}

impl<A: Around> Wait<A> {
    /// The wait for the end of a broadcast of `len` bytes.
    pub fn new(around: A, len: usize) -> Wait<A> {
        Wait {
            around,
            long: len >= SLEEP_FROM_BYTES,
            looks: 0,
            since: Instant::now(),
        }
    }

    /// If others may want the processor, yields it; then makes progress. In this order a rank that
    /// has just found its data keeps the processor: only its next poll would yield.
    pub fn look(&mut self) -> Result<(), Stop> {
        if self.looks > 0 {
            self.give_way().map_err(Stop::Code)?;
        }
        self.around.look();
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS == 0 {
            self.around.progress_of_mpi().map_err(Stop::Code)?;
        }
        match self.looks % LOOKS_BROKEN == 0 && self.around.is_broken() {
            true => Err(Stop::Theirs),
            false => Ok(()),
        }
    }

    fn give_way(&mut self) -> Result<(), c_int> {
        let due = YIELDS_DUE.load(Ordering::Relaxed);
        if due > 0 && self.long && self.looks % LOOKS_BETWEEN == 0 {
            YIELDS_DUE.store(due.saturating_sub(SLEEP_COST), Ordering::Relaxed);
            self.long = self.around.sleep_briefly();
            return self.around.progress_of_mpi();
        } else if due > 0 && !self.long {
            YIELDS_DUE.store(due - 1, Ordering::Relaxed);
            self.yield_cpu();
        } else if self.looks % LOOKS_BETWEEN == 0 && self.since.elapsed() >= SPIN {
            self.yield_cpu();
        }
        Ok(())
    }

    fn yield_cpu(&mut self) {
        let taken = self.around.yield_cpu();
        self.since = Instant::now();
        if taken {
            YIELDS_DUE.store(YIELDS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Records the actions; sleeps are configurable.
    struct Notes {
        done: RefCell<String>,
        sleeps: bool,
        progress: Result<(), c_int>,
        broken: bool,
    }

    impl Around for &Notes {
        fn look(&self) {
            self.done.borrow_mut().push('l');
        }

        fn progress_of_mpi(&self) -> Result<(), c_int> {
            self.progress
        }

        fn is_broken(&self) -> bool {
            self.broken
        }

        fn sleep_briefly(&self) -> bool {
            self.done.borrow_mut().push('d');
            self.sleeps
        }

        fn yield_cpu(&self) -> bool {
            self.done.borrow_mut().push('o');
            false
        }
    }

    /// Makes `count` polls while yields are due. Returns the recorded actions, and the number of
    /// yields due afterwards.
    fn looks(len: usize, sleeps: bool, count: u32) -> (String, u32) {
        YIELDS_DUE.store(YIELDS, Ordering::Relaxed);
        let done = RefCell::default();
        let notes = Notes {
            done,
            sleeps,
            progress: Ok(()),
            broken: false,
        };
        let mut wait = Wait::new(&notes, len);
        (0..count).for_each(|_| wait.look().unwrap());
        (notes.done.take(), YIELDS_DUE.load(Ordering::Relaxed))
    }

    /// Returns how a wait for a broadcast that never ends is ended.
    fn stops(progress: Result<(), c_int>, broken: bool) -> Stop {
        let notes = Notes {
            done: RefCell::default(),
            sleeps: false,
            progress,
            broken,
        };
        let mut wait = Wait::new(&notes, 4);
        loop {
            if let Err(stop) = wait.look() {
                return stop;
            }
        }
    }

    #[test]
    fn a_wait_ends_where_the_mpi_fails() {
        assert_eq!(stops(Ok(()), true), Stop::Theirs);
        assert_eq!(stops(Err(7), false), Stop::Code(7));
    }

    /// All cases are in this test, since the number of due yields is global.
    #[test]
    fn a_poll_result_is_used_before_the_next_yield() {
        assert_eq!(looks(4, true, 3), ("lolol".into(), YIELDS - 2));
        let (done, due) = looks(SLEEP_FROM_BYTES, true, LOOKS_BETWEEN + 1);
        assert_eq!((&*done, due), ("lllllllldl", YIELDS - SLEEP_COST));
        // If sleeps are refused the loop goes on yielding.
        let (done, _) = looks(SLEEP_FROM_BYTES, false, LOOKS_BETWEEN + 3);
        assert_eq!(done, "lllllllldlolol");
        // After its sleeps the rank yields, to see if another process still wants the processor.
        let (done, due) = looks(
            SLEEP_FROM_BYTES,
            true,
            LOOKS_BETWEEN * (YIELDS / SLEEP_COST) + 1,
        );
        assert_eq!((done.matches('d').count(), due), (16, 0));
    }
}
