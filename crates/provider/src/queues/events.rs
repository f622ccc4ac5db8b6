//! A queue of events in order of writing, with threads that wait for them. `tests/shuttle.rs`
//! checks this file's interleavings.

use super::sync::{Condvar, Mutex, PoisonError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The queue; any thread writes, reads and waits.
pub(crate) struct Events<T> {
    events: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Events<T> {
    /// An empty queue.
    pub fn new() -> Events<T> {
        Events {
            events: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        }
    }

    /// Appends an event and wakes all waiting threads.
    pub fn write(&self, event: T) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push_back(event);
        // All: a single woken thread might only peek and leave the event to another thread.
        self.arrived.notify_all();
    }

    /// Returns the result of `look` on the queue. While `look` returns `None`, waits for the next
    /// event and looks again, until `timeout` is over.
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
