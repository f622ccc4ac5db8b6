//! Knowing that this process is a forked child.
//!
//! A child of `fork` has none of its parent's threads, and may have got a lock that nobody will
//! release. So a child never touches an engine of its parent: the door's `pthread_atfork`
//! handler counts a generation here, and an engine that was opened in an earlier generation
//! refuses every call.

use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Says that this process was just forked. Async-signal-safe: one atomic add.
pub fn mark_forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// When something was made, counted in forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process, now.
    pub fn current() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether a fork lies between then and now: what was made then belongs to a parent.
    #[inline]
    pub fn is_forked(self) -> bool {
        self != Generation::current()
    }
}

/// Whether this process or a parent of it was forked since the library was loaded.
pub fn is_forked() -> bool {
    GENERATION.load(Ordering::Relaxed) != 0
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_made_before_a_fork_is_forked() {
        let made = Generation::current();
        // SAFETY: the child only touches atomics and exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let early = made.is_forked();
            mark_forked();
            let late = made.is_forked() && is_forked() && !Generation::current().is_forked();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(early || !late)) };
        }
        let mut status = -1;
        // SAFETY: `status` is an int to write to; `child` is ours.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(waited == child && status == 0, "{waited} {status}");
        assert!(!made.is_forked(), "the parent is not its child");
    }
}
