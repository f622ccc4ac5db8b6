//! A descriptor that an application sleeps on until something is there to read.

use crate::platform::event::Event;
use crate::platform::sync::{fence, AtomicBool, Ordering};

/// One sleeper at a time; anybody rings.
#[derive(Debug)]
pub struct Bell {
    event: Event,
    armed: AtomicBool,
}

impl Bell {
    /// A bell that nobody waits for.
    pub fn new() -> Result<Bell, String> {
        Ok(Bell {
            event: Event::new()?,
            armed: AtomicBool::new(false),
        })
    }

    /// Before a sleep, and before the last look whether it is needed: what comes from now on rings.
    pub fn arm(&self) {
        self.event.clear();
        self.armed.store(true, Ordering::Relaxed);
        // Pairs with the fence in `ring`: either that sees the bell armed, or the look that
        // follows here sees what was there before it.
        fence(Ordering::SeqCst);
    }

    /// Something is there. A system call for the first that comes after [`Bell::arm`].
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.event.raise();
        }
    }

    /// Readable once it rang.
    pub fn fd(&self) -> i32 {
        self.event.fd()
    }
}
