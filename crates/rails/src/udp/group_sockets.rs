//! Sockets of groups, as both halves of a rail have them.

use super::host_seat::Seat;
use crate::sys::Socket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A way in which a group is read: a socket, and the share in it of a process that is not alone.
#[derive(Clone)]
pub(super) struct Joining {
    pub(super) socket: Arc<Socket>,
    pub(super) seat: Option<Arc<Seat>>,
    /// The socket that was read until now: what waits in it came before.
    pub(super) before: Option<Arc<Socket>>,
}

impl Joining {
    /// Both are the same way.
    pub(super) fn is(&self, other: &Joining) -> bool {
        Arc::ptr_eq(&self.socket, &other.socket) && self.seat.is_some() == other.seat.is_some()
    }
}

/// Sockets of groups, on their way from the sending half to the receiving one.
#[derive(Default)]
pub(super) struct Joined {
    pub(super) sockets: Mutex<Vec<Joining>>,
    /// Changes so far.
    pub(super) version: AtomicU32,
}

impl Joined {
    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Joining>)) {
        change(&mut self.sockets.lock().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
    }
}
