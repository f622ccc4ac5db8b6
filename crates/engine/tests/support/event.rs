//! Replaces the kernel's eventfd and `ppoll` where a model checker runs the threads; lock and
//! condition come from the model's `sync`.

use crate::platform::sync::{Condvar, Mutex};

#[allow(dead_code)] // only a call ends a model's sleep
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Called,
    Descriptor,
    Deadline,
}

#[derive(Debug)]
pub struct Event(Mutex<bool>, Condvar);

impl Event {
    pub fn new() -> Result<Event, String> {
        Ok(Event(Mutex::new(false), Condvar::new()))
    }
    pub fn raise(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
    pub fn clear(&self) {
        *self.0.lock().unwrap() = false;
    }
    /// Has no deadline: the model checker reports a sleep without end as a deadlock.
    pub fn wait(&self, _: &[i32], _: u64) -> Woken {
        let mut raised = self.0.lock().unwrap();
        while !*raised {
            raised = self.1.wait(raised).unwrap();
        }
        Woken::Called
    }
}
