//! Several sockets behind one descriptor, for the time of a sleep.
//!
//! A socket in an epoll set makes the kernel call back for every packet that arrives, whether
//! anybody sleeps or not. So sockets are in the set only from [`SleepSet::arm`] to
//! [`SleepSet::disarm`], which need not come before the next sleep but once there is much to read.

use super::{check, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll set.
pub struct SleepSet {
    set: OwnedFd,
    armed: bool,
}

impl SleepSet {
    /// An empty one.
    pub fn new() -> Result<SleepSet, Errno> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let set = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(SleepSet { set, armed: false })
    }

    /// Puts the sockets in; what waits in them already makes the set readable at once.
    pub fn arm(&mut self, sockets: &[RawFd]) {
        if !std::mem::replace(&mut self.armed, true) {
            self.control(libc::EPOLL_CTL_ADD, sockets);
        }
    }

    /// Takes them out.
    #[cold]
    pub fn disarm(&mut self, sockets: &[RawFd]) {
        if std::mem::replace(&mut self.armed, false) {
            self.control(libc::EPOLL_CTL_DEL, sockets);
        }
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    fn control(&self, what: libc::c_int, sockets: &[RawFd]) {
        for &socket in sockets {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32, // errors wake in any case
                u64: 0,
            };
            // SAFETY: `event` lives across the call, which only reads it. A failure (memory, the
            // limit of watches) means a sleep until the next tick.
            unsafe { libc::epoll_ctl(self.fd(), what, socket, &mut event) };
        }
    }
}
