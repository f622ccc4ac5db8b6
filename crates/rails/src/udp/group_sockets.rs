//! Sockets of groups, as both halves of a rail have them.

use crate::sys::{SockName, Socket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Sockets of groups, on their way from the sending half to the receiving one.
#[derive(Default)]
pub(super) struct Joined {
    pub(super) sockets: Mutex<Vec<Arc<Socket>>>,
    /// Changes so far.
    pub(super) version: AtomicU32,
}

impl Joined {
    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Arc<Socket>>)) {
        change(&mut self.sockets.lock().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// A group that the rail is in, as the sending half has it.
pub(super) struct OwnGroup {
    pub(super) name: SockName,
    pub(super) socket: Arc<Socket>,
}
