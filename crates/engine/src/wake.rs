//! Sleeping and waking of the progress thread.
//!
//! The thread sleeps in `ppoll` on an eventfd and, when nobody else polls them, on the rails'
//! descriptors. Nothing stays registered with the kernel while it does not sleep, so arriving
//! packets cost nothing extra while the application polls; the first packet of a sleep ends it,
//! and deadlines are in nanoseconds. (An epoll set would keep a callback on every socket.)

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{fence, AtomicU32, Ordering};

/// Nobody sleeps.
const AWAKE: u32 = 0;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 1;
/// Somebody has written to the eventfd for this sleep: others need not.
const CALLED: u32 = 2;

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

/// One sleeper (the progress thread) and any number of threads that wake it.
#[derive(Debug)]
pub struct Waker {
    state: AtomicU32,
    event: File,
}

impl Waker {
    /// A waker with nobody asleep.
    pub fn new() -> Result<Waker, String> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no eventfd for the progress thread: {error}"));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let event = unsafe { File::from_raw_fd(fd) };
        let state = AtomicU32::new(AWAKE);
        Ok(Waker { state, event })
    }

    /// Ends the sleep, if there is one: what was written before this call is seen by the thread
    /// before it sleeps (again). A fence and a load when nobody sleeps; the first caller of a
    /// sleep makes one system call, the others none.
    #[inline]
    pub fn wake(&self) {
        // Pairs with the fence in `sleep_until`: either we see ASLEEP, or its `has_work` sees
        // what the caller wrote.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let first = self
            .state
            .compare_exchange(ASLEEP, CALLED, success, failure);
        if first.is_ok() {
            // Cannot fail: the count is 0 or 1.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }

    /// Sleeps until `wake`, until one of `descriptors` can be read, or for `timeout_ns`.
    /// `has_work` is asked after others can see that this thread goes to sleep; on `true` it
    /// does not. Only one thread may sleep here.
    ///
    /// A socket with something in its error queue counts as readable until that was fetched.
    pub fn sleep_until(
        &self,
        descriptors: &[RawFd],
        timeout_ns: u64,
        has_work: impl FnOnce() -> bool,
    ) -> Woken {
        self.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let woken = if has_work() {
            Woken::Called
        } else {
            wait(self.event.as_raw_fd(), descriptors, timeout_ns)
        };
        let called = self.state.swap(AWAKE, Ordering::AcqRel) == CALLED;
        if !called && woken != Woken::Called {
            return woken;
        }
        // A caller that has said CALLED has written, or is about to: a count that comes after
        // this ends the next sleep early (and is read then), which harms nobody.
        let _ = (&self.event).read(&mut [0; 8]);
        Woken::Called
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

    /// Whether it went off since the last call.
    pub fn take(&self) -> bool {
        (&self.timer).read(&mut [0; 8]).is_ok()
    }

    /// Readable when it went off.
    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

/// Descriptors watched at most: one per rail and kind leaves much room.
const DESCRIPTORS_MAX: usize = 63;

fn wait(event: RawFd, descriptors: &[RawFd], timeout_ns: u64) -> Woken {
    let watch = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [watch(-1); DESCRIPTORS_MAX + 1]; // -1: ignored by the kernel
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

#[cfg(test)]
mod test {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::atomic::AtomicU64;

    const FOREVER_NS: u64 = 60_000_000_000;

    #[test]
    fn a_deadline_ends_a_sleep() {
        let waker = Waker::new().unwrap();
        assert_eq!(waker.sleep_until(&[], 1_000, || false), Woken::Deadline);
        assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
    }

    #[test]
    fn work_found_at_the_last_moment_prevents_the_sleep() {
        let waker = Waker::new().unwrap();
        assert_eq!(waker.sleep_until(&[], FOREVER_NS, || true), Woken::Called);
    }

    #[test]
    fn a_wake_while_falling_asleep_is_not_lost_and_leaves_no_trace() {
        let waker = Waker::new().unwrap();
        let fall_asleep = || {
            waker.wake();
            waker.wake();
            false
        };
        assert_eq!(
            waker.sleep_until(&[], FOREVER_NS, fall_asleep),
            Woken::Called
        );
        assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
        waker.wake(); // nobody sleeps
        assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
    }

    #[test]
    fn a_packet_ends_a_sleep_only_if_asked_for() {
        let waker = Waker::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let fd = [socket.as_raw_fd()];
        assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
        assert_eq!(
            waker.sleep_until(&fd, FOREVER_NS, || false),
            Woken::Descriptor
        );
        socket.recv(&mut [0; 8]).unwrap();
        assert_eq!(waker.sleep_until(&fd, 0, || false), Woken::Deadline);
    }

    /// Two threads hand a number back and forth, each sleeping without end until called.
    #[test]
    fn no_wake_is_ever_lost() {
        const TURNS: u64 = 20_000;
        let (turn, wakers) = (
            AtomicU64::new(0),
            [Waker::new().unwrap(), Waker::new().unwrap()],
        );
        let play = |me: u64| {
            let mine = || turn.load(Ordering::Relaxed) % 2 == me;
            while turn.load(Ordering::Relaxed) < TURNS {
                while !mine() {
                    let woken = wakers[me as usize].sleep_until(&[], FOREVER_NS, mine);
                    assert_ne!(woken, Woken::Deadline, "a wake was lost");
                }
                turn.fetch_add(1, Ordering::Relaxed);
                wakers[1 - me as usize].wake();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
        assert!(turn.load(Ordering::Relaxed) >= TURNS);
    }
}
