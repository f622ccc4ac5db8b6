//! How often reads of a queue may do without a poll of the sockets, while the queue still has
//! entries. Any thread may read.

use crate::platform::sync::{AtomicU32, Ordering};

/// Reads that may be served from what is in the queue.
#[derive(Debug)]
pub(crate) struct Skips {
    left: AtomicU32,
}

impl Skips {
    /// None.
    pub fn new() -> Skips {
        let left = AtomicU32::new(0);
        Skips { left }
    }

    /// Takes one. A load when there is none.
    #[inline]
    pub fn take(&self) -> bool {
        let mut left = self.left.load(Ordering::Relaxed);
        // Not `fetch_sub`: of two threads that see the last one, one would go below zero.
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

    /// The sockets were polled, and the queue has more than was read: so many from now on.
    pub fn refill(&self, reads: u32) {
        self.left.store(reads, Ordering::Relaxed);
    }

    /// The queue is empty.
    pub fn end(&self) {
        self.left.store(0, Ordering::Relaxed);
    }
}
