//! The kernel's means for sleeping and waking: an event, a timer, and waiting for both.
//!
//! The thread sleeps in `ppoll` on an eventfd and, when nobody else polls them, on the rails'
//! descriptors. Nothing stays registered with the kernel while it does not sleep, so arriving
//! packets cost nothing extra while the application polls; the first packet of a sleep ends it,
//! and deadlines are in nanoseconds. (An epoll set would keep a callback on every socket.)

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// [`Waker::wake`] was called, or there was work already.
    Called,
    /// A descriptor has something to read, or an error to fetch.
    Descriptor,
    /// The deadline has passed.
    Deadline,
    /// A signal; look at the deadline and sleep again.
    Interrupted,
}

/// Something that happened, until it is taken notice of.
#[derive(Debug)]
pub(crate) struct Event {
    file: File,
}

impl Event {
    /// One that did not happen.
    pub fn new() -> Result<Event, String> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no eventfd for the progress thread: {error}"));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Event { file })
    }

    /// It happened.
    pub fn raise(&self) {
        // Cannot fail: the count is 0 or 1.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Readable when it happened.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Takes notice.
    pub fn clear(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }

    /// Sleeps until it happens, until one of `descriptors` can be read, or for `timeout_ns`.
    pub fn wait(&self, descriptors: &[RawFd], timeout_ns: u64) -> Woken {
        wait(self.file.as_raw_fd(), descriptors, timeout_ns)
    }
}

/// A timer of the kernel that many threads set and the progress thread waits for.
#[derive(Debug)]
pub struct Alarm {
    timer: File,
}

impl Alarm {
    /// A timer that is not set.
    pub fn new() -> Result<Alarm, String> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no timer for the progress thread: {error}"));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let timer = unsafe { File::from_raw_fd(fd) };
        Ok(Alarm { timer })
    }

    /// Goes off `after_ns` (below one second) from now, instead of whenever it was set for.
    pub fn set(&self, after_ns: u64) {
        let at = |tv_nsec| libc::timespec { tv_sec: 0, tv_nsec };
        let once = libc::itimerspec {
            it_interval: at(0),
            it_value: at(after_ns as _),
        };
        let fd = self.timer.as_raw_fd();
        // SAFETY: `once` lives across the call; the old value is not asked for.
        unsafe { libc::timerfd_settime(fd, 0, &once, std::ptr::null_mut()) };
    }

    /// True if it went off since the last call.
    pub fn take(&self) -> bool {
        (&self.timer).read(&mut [0; 8]).is_ok()
    }

    /// Readable when it went off.
    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

/// Sleeps until one of `descriptors` can be read, or for `timeout_ns`.
pub(crate) fn nap(descriptors: &[RawFd], timeout_ns: u64) {
    wait(NO_FD, descriptors, timeout_ns);
}

/// A descriptor that the kernel ignores (ppoll(2)).
const NO_FD: RawFd = -1;
/// Descriptors watched at most: one per rail and kind leaves much room.
const DESCRIPTORS_MAX: usize = 63;

fn wait(event: RawFd, descriptors: &[RawFd], timeout_ns: u64) -> Woken {
    let watch = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [watch(NO_FD); DESCRIPTORS_MAX + 1];
    fds[0] = watch(event);
    let count = descriptors.len().min(DESCRIPTORS_MAX);
    for (slot, &fd) in fds[1..=count].iter_mut().zip(descriptors) {
        *slot = watch(fd);
    }
    const SECOND_NS: u64 = 1_000_000_000;
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / SECOND_NS) as libc::time_t,
        tv_nsec: (timeout_ns % SECOND_NS) as _,
    };
    // SAFETY: `fds` has that many entries, `timeout` lives across the call, no signal mask.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            count as libc::nfds_t + 1,
            &timeout,
            std::ptr::null(),
        )
    };
    match ready {
        0 => Woken::Deadline,
        n if n < 0 => Woken::Interrupted,
        _ if fds[1..=count].iter().any(|fd| fd.revents != 0) => Woken::Descriptor,
        _ => Woken::Called,
    }
}
