//! A descriptor on which an application sleeps until a queue has entries.

use crate::platform::event::Event;
use crate::platform::sync::{fence, AtomicBool, Ordering};

/// At most one thread sleeps; any thread rings.
#[derive(Debug)]
pub struct Bell {
    event: Event,
    armed: AtomicBool,
}

impl Bell {
    /// Creates a bell that is not armed.
    pub fn new() -> Result<Bell, String> {
        Ok(Bell {
            event: Event::new()?,
            armed: AtomicBool::new(false),
        })
    }

    /// Arms the bell before the last check for entries and the sleep: later entries ring.
    pub fn arm(&self) {
        self.event.clear();
        self.armed.store(true, Ordering::Relaxed);
        // Pairs with the fence in `ring`: either `ring` sees the bell armed, or the check that
        // follows here sees the entry.
        fence(Ordering::SeqCst);
    }

    /// Rings the bell. Costs a system call only for the first entry after [`Bell::arm`].
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.event.raise();
        }
    }

    /// Descriptor that is readable after the bell rang.
    pub fn fd(&self) -> i32 {
        self.event.fd()
    }
}
