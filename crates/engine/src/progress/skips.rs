//! A counter of operations that may still skip a step; for example, reads of a queue with entries
//! skip the poll of the sockets. Any thread may use it.

use crate::platform::sync::{AtomicU32, Ordering};

/// The number of operations that may still skip.
#[derive(Debug)]
pub(crate) struct Skips {
    left: AtomicU32,
}

impl Skips {
    /// Starts at zero.
    pub fn new() -> Skips {
        let left = AtomicU32::new(0);
        Skips { left }
    }

    /// Uses up one skip; `false` if there is none. Costs a load at zero.
    #[inline]
    pub fn take(&self) -> bool {
        let mut left = self.left.load(Ordering::Relaxed);
        // Not `fetch_sub`, which two threads could use to go below zero.
        while let Some(less) = left.checked_sub(1) {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let taken = self
                .left
                .compare_exchange_weak(left, less, success, failure);
            match taken {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    /// Sets the number, after the full step was done.
    pub fn refill(&self, reads: u32) {
        self.left.store(reads, Ordering::Relaxed);
    }

    /// Resets the number to zero.
    pub fn end(&self) {
        self.left.store(0, Ordering::Relaxed);
    }
}
