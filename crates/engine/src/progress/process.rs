//! The system of a process: its clock, its sockets and its single progress thread.

use crate::platform::clock::{Clock, MonotonicClock, SystemClock};
use crate::platform::event;
use crate::platform::fork::PerProcess;
use crate::platform::sync::Arc;
use crate::platform::system::System;
use crate::progress::shared::Shared;
use crate::progress::thread::ProgressThread;
use marline_rails::{AnyRx, AnyTx};
use std::os::fd::RawFd;

static THREAD: PerProcess<ProgressThread<Process>> = PerProcess::new();

/// Registers an engine with the progress thread, which is started if necessary.
pub(crate) fn join(shared: &Arc<Shared<Process>>) -> Result<(), String> {
    let registry = THREAD.get_or_make(ProgressThread::new)?;
    // A new thread inherits the signal mask of its creator.
    let _blocked = BlockedSignals::new();
    registry.join(shared, || registry.run())
}

/// Removes an engine from the progress thread; the thread ends with its last engine.
pub(crate) fn leave(shared: &Arc<Shared<Process>>) {
    if let Some(registry) = THREAD.get() {
        registry.leave(shared);
    }
}

/// Sets the alarm of the process's thread (`ProgressThread::set_alarm`).
pub(crate) fn alarm() {
    if let Some(registry) = THREAD.get() {
        registry.set_alarm();
    }
}

/// The system of a process: its sockets, its clock, its thread.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub(crate) SystemClock);

impl Clock for Process {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

impl System for Process {
    type Tx = AnyTx;
    type Rx = AnyRx;
    type Watch = ();

    fn alarm(&self) {
        alarm();
    }

    fn call(&self) {
        if let Some(registry) = THREAD.get() {
            registry.call();
        }
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn sleep(&self, descriptors: &[RawFd], timeout_ns: u64) {
        event::sleep(descriptors, timeout_ns);
    }

    fn stopwatch_ns() -> u64 {
        MonotonicClock.now_ns()
    }
}

/// Signals that a thread's own actions raise. If one of them were blocked, the kernel would kill
/// the process instead of calling the application's handler, for example after a page fault in
/// memory that the application protects.
const RAISED: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// While it exists, blocks all signals but [`RAISED`] in this thread: the other signals belong to
/// the application.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> BlockedSignals {
        // SAFETY: both sets are locals that the calls initialise; only this thread's mask changes.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut set);
            for signal in RAISED {
                libc::sigdelset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &set, &mut before);
            BlockedSignals { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: a set that the kernel wrote; only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
