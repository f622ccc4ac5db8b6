//! Waiting for many descriptors by one.

use super::{check, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A set of descriptors.
pub struct Epoll {
    fd: OwnedFd,
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

    /// A set that takes nothing, as the descriptor is none of a set.
    #[cfg(test)]
    pub fn of(fd: OwnedFd) -> Epoll {
        Epoll { fd }
    }

    /// Adds a descriptor by a name.
    pub fn add(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, name)
    }

    /// Adds the descriptor of a connection that is being made: it is reported once that has ended,
    /// well or not.
    pub fn add_connecting(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control_for(libc::EPOLL_CTL_ADD, fd, name, libc::EPOLLOUT)
    }

    /// Reports the descriptor from now on as one that [`Epoll::add`] added.
    pub fn change_to_read(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, name)
    }

    /// Takes a descriptor out; one that is not in it is no error.
    pub fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0);
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control_for(operation, fd, name, libc::EPOLLIN | libc::EPOLLRDHUP)
    }

    fn control_for(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        name: u64,
        events: libc::c_int,
    ) -> Result<(), Errno> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: name,
        };
        // SAFETY: the event outlives the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &mut event) })
            .map(|_| ())
    }

    /// Calls `f` with the name of each descriptor to which something happened, at most some dozens,
    /// without waiting.
    pub fn look(&self, mut f: impl FnMut(u64)) {
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
            f(event.u64);
        }
    }

    /// The descriptor of the set.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
