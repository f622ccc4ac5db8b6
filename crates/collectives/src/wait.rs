//! How a rank waits for a broadcast: by looking again and again; where it has no processor of its
//! own, it offers the one that it has to others after each look, or sleeps for a millisecond if
//! the broadcast is long (docs/design/multicast.md) and so is what may be under way.

use crate::mpi::{Handle, Mpi};
use crate::provider::Provider;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The MPI makes progress with what else the program has begun after so many looks.
const LOOKS: u32 = 32;
/// After so many the MPI is asked if the communicator's calls still succeed: a millisecond or so.
const LOOKS_BROKEN: u32 = 1_024;
/// Time after which the processor is offered to others, at the latest: the wait that one of them
/// has on account of this one. The offer takes a hundredth of it.
const SPIN: Duration = Duration::from_micros(50);
/// After an offer that let somebody else run this many follow, one before each further look: those
/// that wait are in the way of those that have what they wait for.
const OFFERS: u32 = 1_024;
/// Broadcasts of so many bytes are waited for asleep: ranks that offer the processor in a loop are
/// in the way, too, and a sleep's end is late by a share of such a broadcast only.
const DOZE_FROM: usize = 512 << 10;
/// Such a sleep counts as so many offers: after some of them it is asked again if anybody wants the
/// processor, as one who did so once is not worth a thousand sleeps.
const DOZE_COUNTS: u32 = 64;
/// Looks between two readings of the clock, or before a sleep: what comes soon is there without a
/// change of processes.
const LOOKS_BETWEEN: u32 = 8;

/// Offers that are due in this process.
static OFFERS_DUE: AtomicU32 = AtomicU32::new(0);

/// The reason why a rank stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The MPI's own call fails as well, and says why.
    Theirs,
    /// The call ends with this error.
    Code(c_int),
}

/// The doings of a rank that waits.
pub trait Around {
    /// Makes progress for the engine: a look at its rails.
    fn look(&self);
    /// Makes progress for the MPI.
    fn progress_of_mpi(&self) -> Result<(), c_int>;
    /// Says if the MPI's own collective calls fail: whoever has to answer may have left.
    fn is_broken(&self) -> bool;
    /// Sleeps for a millisecond at most; `false`: it does not, as others would wait for it.
    fn doze(&self) -> bool;
    /// Lets others run that wait for the processor; whether one did.
    fn offer(&self) -> bool;
}

/// Around a call of a communicator; none: around several.
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

    fn doze(&self) -> bool {
        (self.1.doze)() > 0
    }

    fn offer(&self) -> bool {
        (self.1.offer)() > 0
    }
}

/// One rank's wait for one broadcast.
pub struct Wait<A> {
    around: A,
    long: bool,
    looks: u32,
    since: Instant,
}

impl<A: Around> Wait<A> {
    /// The broadcast has `len` bytes.
    pub fn new(around: A, len: usize) -> Wait<A> {
        Wait {
            around,
            long: len >= DOZE_FROM,
            looks: 0,
            since: Instant::now(),
        }
    }

    /// Gives the processor away where others may want it, and makes progress: in this order, so
    /// that nobody who has just found what it waits for keeps it until the others have had a turn.
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
        let due = OFFERS_DUE.load(Ordering::Relaxed);
        if due > 0 && self.long && self.looks % LOOKS_BETWEEN == 0 {
            OFFERS_DUE.store(due.saturating_sub(DOZE_COUNTS), Ordering::Relaxed);
            self.long = self.around.doze();
            return self.around.progress_of_mpi();
        } else if due > 0 && !self.long {
            OFFERS_DUE.store(due - 1, Ordering::Relaxed);
            self.offer();
        } else if self.looks % LOOKS_BETWEEN == 0 && self.since.elapsed() >= SPIN {
            self.offer();
        }
        Ok(())
    }

    fn offer(&mut self) {
        let taken = self.around.offer();
        self.since = Instant::now();
        if taken {
            OFFERS_DUE.store(OFFERS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes what is done, and may sleep or not.
    struct Notes {
        done: RefCell<String>,
        dozes: bool,
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

        fn doze(&self) -> bool {
            self.done.borrow_mut().push('d');
            self.dozes
        }

        fn offer(&self) -> bool {
            self.done.borrow_mut().push('o');
            false
        }
    }

    /// The doings of so many looks, while so many offers are due; how many are due then.
    fn looks(len: usize, dozes: bool, count: u32) -> (String, u32) {
        OFFERS_DUE.store(OFFERS, Ordering::Relaxed);
        let done = RefCell::default();
        let notes = Notes {
            done,
            dozes,
            progress: Ok(()),
            broken: false,
        };
        let mut wait = Wait::new(&notes, len);
        (0..count).for_each(|_| wait.look().unwrap());
        (notes.done.take(), OFFERS_DUE.load(Ordering::Relaxed))
    }

    /// The end of a wait for what never comes.
    fn stops(progress: Result<(), c_int>, broken: bool) -> Stop {
        let notes = Notes {
            done: RefCell::default(),
            dozes: false,
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

    /// One test, as what is due is due in a process.
    #[test]
    fn what_a_look_finds_is_told_before_the_processor_is_offered() {
        assert_eq!(looks(4, true, 3), ("lolol".into(), OFFERS - 2));
        let (done, due) = looks(DOZE_FROM, true, LOOKS_BETWEEN + 1);
        assert_eq!((&*done, due), ("lllllllldl", OFFERS - DOZE_COUNTS));
        // Where a sleep would hold up others, who offers goes on offering.
        let (done, _) = looks(DOZE_FROM, false, LOOKS_BETWEEN + 3);
        assert_eq!(done, "lllllllldlolol");
        // Sleeps end, and then it is asked if anybody still wants the processor.
        let (done, due) = looks(DOZE_FROM, true, LOOKS_BETWEEN * (OFFERS / DOZE_COUNTS) + 1);
        assert_eq!((done.matches('d').count(), due), (16, 0));
    }
}
