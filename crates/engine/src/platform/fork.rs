//! Detection of forked children.
//!
//! A child of `fork` has none of its parent's threads, and may have inherited a lock that no thread
//! will release. So a child never touches an engine of its parent: the API layer's `pthread_atfork`
//! handler increments a generation here, and an engine that was opened in an earlier generation
//! refuses every call. The child may open engines of its own: process-wide state is created once
//! per generation ([`PerProcess`]).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Records that this process was just forked. Async-signal-safe: one atomic add.
pub fn mark_forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The generation in which an object was created, counted in forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// The current generation.
    pub fn current() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// True if the process was forked since then: the object belongs to a parent.
    #[inline]
    pub fn is_forked(self) -> bool {
        self != Generation::current()
    }
}

/// A value that each process creates for itself on first use. A child never touches its parent's
/// value: a lock in it may be held by a thread that does not exist in the child, and its
/// descriptors are the parent's. No call waits, so a fork may happen at any moment.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<Made<T>>);

#[derive(Debug)]
struct Made<T> {
    when: Generation,
    it: T,
}

impl<T> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T> PerProcess<T> {
    /// Starts without a value.
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(null_mut()))
    }
}

impl<T: Send + Sync> PerProcess<T> {
    /// The value of this process, if it was created.
    pub fn get(&self) -> Option<&T> {
        PerProcess::ours(self.0.load(Ordering::Acquire))
    }

    fn ours<'a>(made: *mut Made<T>) -> Option<&'a T> {
        // SAFETY: null, or from `get_or_make`, which never frees a value that other threads may
        // have seen.
        let made = unsafe { made.as_ref() }?;
        (!made.when.is_forked()).then_some(&made.it)
    }

    /// The value of this process, created by `make` on first use. If several threads create one at
    /// the same time, the first one is kept.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let mut last = self.0.load(Ordering::Acquire);
        if let Some(it) = PerProcess::ours(last) {
            return Ok(it);
        }
        let when = Generation::current();
        let made = Box::into_raw(Box::new(Made { when, it: make()? }));
        loop {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange(last, made, success, failure) {
                // SAFETY: created above, and never freed from now on.
                Ok(_) => return Ok(unsafe { &(*made).it }),
                Err(other) => last = other,
            }
            if let Some(it) = PerProcess::ours(last) {
                // SAFETY: created above, and not visible to other threads.
                drop(unsafe { Box::from_raw(made) });
                return Ok(it);
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn values_from_before_a_fork_are_recognised() {
        let made = Generation::current();
        // SAFETY: the child only touches atomics and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let early = made.is_forked();
            mark_forked();
            let late = made.is_forked() && !Generation::current().is_forked();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(early || !late)) };
        }
        let mut status = -1;
        // SAFETY: `status` is an int to write to; `child` is ours.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(waited == child && status == 0, "{waited} {status}");
        assert!(!made.is_forked(), "the parent is not its child");
    }

    /// The parent, a child and a grandchild have separate values.
    #[test]
    fn each_process_makes_its_own() {
        static MADE: PerProcess<u32> = PerProcess::new();
        assert_eq!(MADE.get(), None);
        assert_eq!(MADE.get_or_make(|| Err("no")), Err("no"));
        let first = |n| MADE.get_or_make(|| Ok::<_, ()>(n)).copied();
        assert_eq!((first(1), first(2), MADE.get()), (Ok(1), Ok(1), Some(&1)));
        // SAFETY: the child only allocates, which the C library permits, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut right = true;
            for n in [7, 8] {
                mark_forked();
                right &= MADE.get().is_none() && first(n) == Ok(n) && first(9) == Ok(n);
            }
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: `status` is an int to write to; `child` is ours.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(waited == child && status == 0, "{waited} {status}");
        assert_eq!(MADE.get(), Some(&1));
    }

    #[test]
    fn threads_that_make_it_at_once_get_the_same() {
        static MADE: PerProcess<u32> = PerProcess::new();
        let make = |n| MADE.get_or_make(|| Ok::<_, ()>(n)).copied().unwrap();
        let got: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || make(n))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(got.iter().all(|n| Some(n) == MADE.get()), "{got:?}");
    }
}
