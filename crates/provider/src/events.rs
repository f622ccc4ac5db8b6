//! Events in the order in which they were written, and threads that wait for them.
//! `tests/shuttle.rs` tries orders of this file's steps.

use crate::sync::{Condvar, Mutex, PoisonError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The queue; any thread writes, reads and waits.
pub(crate) struct Events<T> {
    events: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Events<T> {
    /// None yet.
    pub fn new() -> Events<T> {
        Events {
            events: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        }
    }

    /// Adds one, and has everybody who waits look.
    pub fn write(&self, event: T) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push_back(event);
        // All: the one that a single notice reaches may only look, and leave it to another.
        self.arrived.notify_all();
    }

    /// Returns what `look` finds in the queue. As long as that is nothing, it looks again whenever
    /// something is written, until `timeout` is over.
    pub fn wait<R>(
        &self,
        timeout: Duration,
        mut look: impl FnMut(&mut VecDeque<T>) -> Option<R>,
    ) -> Option<R> {
        let deadline = Instant::now() + timeout;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = look(&mut events) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            events = self
                .arrived
                .wait_timeout(events, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
