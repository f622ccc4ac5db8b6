//! Waiting for many descriptors by one.

use super::{check, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A set of descriptors.
pub struct Epoll {
    fd: OwnedFd,
}

/// One descriptor of the set that something happened to.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The name that it was added by.
    pub token: u64,
    /// It can be written to, or its connection failed.
    pub writable: bool,
}

/// Most descriptors that one look reports.
const READY_MAX: usize = 32;

impl Epoll {
    /// An empty set.
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: epoll_create1 takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll { fd })
    }

    /// Adds a descriptor by a name; with `connecting` it is also reported once it can be written to.
    pub fn add(&self, fd: RawFd, token: u64, connecting: bool) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, connecting)
    }

    /// Takes a descriptor out; one that is not in it is no error.
    pub fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, false);
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        token: u64,
        writable: bool,
    ) -> Result<(), Errno> {
        let write = if writable { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLRDHUP | write) as u32,
            u64: token,
        };
        // SAFETY: the event outlives the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &mut event) })
            .map(|_| ())
    }

    /// Calls `f` for each descriptor to which something happened, at most some dozens, without
    /// waiting.
    pub fn look(&self, mut f: impl FnMut(Ready)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        // SAFETY: the events are valid for their number, and 0 does not wait.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                READY_MAX as libc::c_int,
                0,
            )
        };
        for event in &events[..count.max(0) as usize] {
            let failed = libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP;
            f(Ready {
                token: event.u64,
                writable: event.events & failed as u32 != 0,
            });
        }
    }

    /// The descriptor of the set.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
