//! Group sockets, as passed between the halves of a rail.

use super::host_member::HostMember;
use crate::sys::Socket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a group is read: by a socket and, if the socket is shared, a member in its ring.
#[derive(Clone)]
pub(super) struct Joining {
    pub(super) socket: Arc<Socket>,
    pub(super) member: Option<Arc<HostMember>>,
    /// The socket that was read before, whose packets are older.
    pub(super) before: Option<Arc<Socket>>,
}

impl Joining {
    /// Returns whether both read in the same way.
    pub(super) fn is(&self, other: &Joining) -> bool {
        Arc::ptr_eq(&self.socket, &other.socket) && self.member.is_some() == other.member.is_some()
    }
}

/// Group sockets on the way from the sending to the receiving half.
#[derive(Default)]
pub(super) struct Joined {
    pub(super) sockets: Mutex<Vec<Joining>>,
    /// Number of changes so far.
    pub(super) version: AtomicU32,
}

impl Joined {
    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Joining>)) {
        change(&mut self.sockets.lock().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
    }
}
