//! Waiting for many descriptors through one.

use super::{check, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A set of descriptors.
pub struct Epoll {
    fd: OwnedFd,
}

/// Most descriptors reported by one call.
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

    /// A set that accepts no descriptors, for tests: `fd` is no epoll descriptor.
    #[cfg(test)]
    pub fn of(fd: OwnedFd) -> Epoll {
        Epoll { fd }
    }

    /// Adds a descriptor under a name.
    pub fn add(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, name)
    }

    /// Adds the descriptor of a connection attempt: it is reported when the attempt has ended,
    /// successfully or not.
    pub fn add_connecting(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control_for(libc::EPOLL_CTL_ADD, fd, name, libc::EPOLLOUT)
    }

    /// Reports the descriptor from now on like one added by [`Epoll::add`].
    pub fn change_to_read(&self, fd: RawFd, name: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, name)
    }

    /// Removes a descriptor, if it is in the set.
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

    /// Calls `f` with the name of each ready descriptor, at most a few dozen, without blocking.
    pub fn look(&self, f: impl FnMut(u64)) {
        self.call(0, f);
    }

    /// Like [`Self::look`], after a sleep until a descriptor is ready.
    pub fn wait(&self, f: impl FnMut(u64)) {
        self.call(-1, f);
    }

    fn call(&self, timeout_ms: libc::c_int, mut f: impl FnMut(u64)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY_MAX];
        // SAFETY: the events are valid for their number.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                READY_MAX as libc::c_int,
                timeout_ms,
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
