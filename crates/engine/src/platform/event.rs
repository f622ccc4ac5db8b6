//! Kernel primitives for sleeping and waking: an event, a timer, and waiting for both.
//!
//! The thread sleeps in `ppoll` on an eventfd and, while no other thread polls them, on the rails'
//! descriptors. While it is awake no registration remains in the kernel, so arriving packets cost
//! nothing extra while the application polls. (An epoll set would keep a callback on every socket.)
//! The first packet ends a sleep, and deadlines are in nanoseconds.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// The reason why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// [`Waker::wake`] was called before or during the sleep.
    Called,
    /// A descriptor is readable or has an error.
    Descriptor,
    /// The deadline has passed.
    Deadline,
    /// A signal arrived; check the deadline and sleep again.
    Interrupted,
}

/// A flag in the kernel that stays set until it is cleared (eventfd).
#[derive(Debug)]
pub(crate) struct Event {
    file: File,
}

impl Event {
    /// Creates an event that is not set.
    pub fn new() -> Result<Event, String> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no eventfd for the progress thread: {error}"));
        }
        // SAFETY: a new descriptor without another owner.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Event { file })
    }

    /// Sets the event.
    pub fn raise(&self) {
        // Cannot fail: the count is 0 or 1.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Descriptor that is readable while the event is set.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Clears the event.
    pub fn clear(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }

    /// Sleeps until the event is set, one of `descriptors` is readable, or `timeout_ns` has passed.
    pub fn wait(&self, descriptors: &[RawFd], timeout_ns: u64) -> Woken {
        wait(self.file.as_raw_fd(), descriptors, timeout_ns)
    }
}

/// A kernel timer that many threads set and the progress thread waits for.
#[derive(Debug)]
pub struct Alarm {
    timer: File,
}

impl Alarm {
    /// Creates a timer that is not set.
    pub fn new() -> Result<Alarm, String> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no timer for the progress thread: {error}"));
        }
        // SAFETY: a new descriptor without another owner.
        let timer = unsafe { File::from_raw_fd(fd) };
        Ok(Alarm { timer })
    }

    /// Sets the timer to ring once, `after_ns` (below one second) from now; replaces an earlier
    /// time.
    pub fn set(&self, after_ns: u64) {
        let at = |tv_nsec| libc::timespec { tv_sec: 0, tv_nsec };
        let once = libc::itimerspec {
            it_interval: at(0),
            it_value: at(after_ns as _),
        };
        let fd = self.timer.as_raw_fd();
        // SAFETY: `once` lives across the call; the old value is not requested.
        unsafe { libc::timerfd_settime(fd, 0, &once, std::ptr::null_mut()) };
    }

    /// True if the timer rang since the last call.
    pub fn take(&self) -> bool {
        (&self.timer).read(&mut [0; 8]).is_ok()
    }

    /// Descriptor that is readable after the timer rang.
    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

/// Sleeps until one of `descriptors` is readable, or for `timeout_ns`.
pub(crate) fn sleep(descriptors: &[RawFd], timeout_ns: u64) {
    wait(NO_FD, descriptors, timeout_ns);
}

/// A descriptor that the kernel ignores (ppoll(2)).
const NO_FD: RawFd = -1;
/// Most watched descriptors: ample for one per rail and kind.
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
    // SAFETY: `fds` has as many entries, `timeout` lives across the call, no signal mask.
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
