//! Sleeping and waking of the progress thread: no wake-up is lost, and waking an awake thread costs
//! no system call. `tests/loom.rs` checks all interleavings of this file.

use crate::platform::event::Event;
pub use crate::platform::event::Woken;
use crate::platform::sync::{fence, AtomicU32, Ordering};
use std::os::fd::RawFd;

/// The thread is awake.
const AWAKE: u32 = 0;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 1;
/// A caller has raised the event for this sleep; other callers need not.
const CALLED: u32 = 2;

/// One sleeper (the progress thread) and any number of threads that wake it.
#[derive(Debug)]
pub struct Waker {
    state: AtomicU32,
    event: Event,
}

impl Waker {
    /// Creates a waker whose thread is awake.
    pub fn new() -> Result<Waker, String> {
        let event = Event::new()?;
        let state = AtomicU32::new(AWAKE);
        Ok(Waker { state, event })
    }

    /// Ends the sleep, if there is one. Before it sleeps (again), the thread sees all writes made
    /// before this call. Costs a fence and a load while the thread is awake; the first caller
    /// during a sleep makes one system call, others none.
    #[inline]
    pub fn wake(&self) {
        // Pairs with the fence in `sleep_until`: either this load sees ASLEEP, or its `has_work`
        // sees the caller's writes.
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

    /// Sleeps until `wake`, until one of `descriptors` is readable, or for `timeout_ns`. Calls
    /// `has_work` once other threads can see ASLEEP, and does not sleep if it returns `true`. Only
    /// one thread may sleep.
    ///
    /// A socket with an entry in its error queue counts as readable until the entry is fetched.
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
        // The caller that set CALLED has raised the event or is about to raise it. If it does so
        // after this line, the next sleep ends early, which is harmless, and clears the event.
        self.event.clear();
        Woken::Called
    }
}
