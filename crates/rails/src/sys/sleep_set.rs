//! Several sockets behind one descriptor for the duration of a sleep.
//!
//! A socket in an epoll set costs a wake-up callback in the kernel for every packet, even while no
//! thread sleeps. So sockets are in the set only from [`SleepSet::arm`] to [`SleepSet::disarm`].
//! The latter may come late, but must come under load.

use super::{check, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll set.
pub struct SleepSet {
    set: OwnedFd,
    armed: bool,
}

impl SleepSet {
    /// Makes an empty set.
    pub fn new() -> Result<SleepSet, Errno> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let set = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(SleepSet { set, armed: false })
    }

    /// Adds the sockets; packets that already wait make the set readable at once.
    pub fn arm(&mut self, sockets: &[RawFd]) {
        if !std::mem::replace(&mut self.armed, true) {
            self.control(libc::EPOLL_CTL_ADD, sockets);
        }
    }

    /// Removes the sockets.
    #[cold]
    pub fn disarm(&mut self, sockets: &[RawFd]) {
        if std::mem::replace(&mut self.armed, false) {
            self.control(libc::EPOLL_CTL_DEL, sockets);
        }
    }

    /// The descriptor of the set.
    pub fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    fn control(&self, what: libc::c_int, sockets: &[RawFd]) {
        for &socket in sockets {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32, // errors are reported in any case
                u64: 0,
            };
            // SAFETY: `event` lives across the call, which only reads it. A failure (memory, the
            // limit of watches) only means a sleep until the next tick.
            unsafe { libc::epoll_ctl(self.fd(), what, socket, &mut event) };
        }
    }
}
