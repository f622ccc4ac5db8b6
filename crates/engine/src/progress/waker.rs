//! Sleeping and waking of the progress thread: no wake is lost, and nobody makes a system call
//! for a thread that is awake. `tests/loom.rs` tries all orders of this file's steps.

use crate::platform::event::Event;
pub use crate::platform::event::Woken;
use crate::platform::sync::{fence, AtomicU32, Ordering};
use std::os::fd::RawFd;

/// Nobody sleeps.
const AWAKE: u32 = 0;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 1;
/// Somebody has raised the event for this sleep: others need not.
const CALLED: u32 = 2;

/// One sleeper (the progress thread) and any number of threads that wake it.
#[derive(Debug)]
pub struct Waker {
    state: AtomicU32,
    event: Event,
}

impl Waker {
    /// A waker with nobody asleep.
    pub fn new() -> Result<Waker, String> {
        let event = Event::new()?;
        let state = AtomicU32::new(AWAKE);
        Ok(Waker { state, event })
    }

    /// Ends the sleep, if there is one: what was written before this call is seen by the thread
    /// before it sleeps (again). A fence and a load when nobody sleeps; the first caller of a
    /// sleep makes one system call, the others none.
    #[inline]
    pub fn wake(&self) {
        // Pairs with the fence in `sleep_until`: either we see ASLEEP, or its `has_work` sees
        // what the caller wrote.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let first = self
            .state
            .compare_exchange(ASLEEP, CALLED, success, failure);
        if first.is_ok() {
            self.event.raise();
        }
    }

    /// Sleeps until `wake`, until one of `descriptors` can be read, or for `timeout_ns`.
    /// `has_work` is asked after others can see that this thread goes to sleep; on `true` it
    /// does not. Only one thread may sleep here.
    ///
    /// A socket with something in its error queue counts as readable until that was fetched.
    pub fn sleep_until(
        &self,
        descriptors: &[RawFd],
        timeout_ns: u64,
        has_work: impl FnOnce() -> bool,
    ) -> Woken {
        self.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let woken = if has_work() {
            Woken::Called
        } else {
            self.event.wait(descriptors, timeout_ns)
        };
        let called = self.state.swap(AWAKE, Ordering::AcqRel) == CALLED;
        if !called && woken != Woken::Called {
            return woken;
        }
        // A caller that has said CALLED has raised it, or is about to: one that comes after this
        // ends the next sleep early (and is cleared then), which harms nobody.
        self.event.clear();
        Woken::Called
    }
}
