//! The progress thread: one per process, for all its engines. While the application polls, the
//! thread only ticks. After a tick without a poll it sleeps on the rails' descriptors and handles
//! arriving packets, so that acks, retransmissions and grants continue while the application
//! computes.

use crate::platform::event::Alarm;
use crate::platform::sync::{Arc, AtomicU32, Builder, Ordering};
use crate::platform::system::System;
use crate::progress::registry::Registry;
use crate::progress::shared::Shared;
use crate::progress::waker::Waker;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Delay of the alarm for coalesced sends: 200 us are promised, of which waking up takes up to 50.
const ALARM_NS: u64 = 100_000;
/// Longest sleep without engines.
const IDLE_NS: u64 = 100_000_000;

/// Engines of one kind, the thread that serves them, and its waker. `tests/shared` runs this with
/// the threads, time and rails of a model checker.
pub(crate) struct ProgressThread<S: System> {
    registry: Registry<Shared<S>>,
    waker: Waker,
    alarm: Alarm,
    /// Number of wake-up calls; detects a call during the thread's check.
    called: AtomicU32,
}

impl<S: System> ProgressThread<S> {
    /// Creates the state without engines and without a thread.
    pub(crate) fn new() -> Result<ProgressThread<S>, String> {
        Ok(ProgressThread {
            registry: Registry::new(),
            waker: Waker::new()?,
            alarm: Alarm::new()?,
            called: AtomicU32::new(0),
        })
    }

    /// Adds an engine. If there is no thread, starts one that executes `run`.
    pub(crate) fn join(
        &self,
        shared: &Arc<Shared<S>>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), String> {
        let start = || {
            let builder = Builder::new().name("marline".into()).stack_size(256 * 1024);
            builder
                .spawn(run)
                .map_err(|e| format!("no progress thread: {e} (FI_MARLINE_PROGRESS_THREAD=off)"))
        };
        self.registry.join(shared, start)?;
        self.waker.wake();
        Ok(())
    }

    /// Removes an engine; the thread ends with its last engine.
    pub(crate) fn leave(&self, shared: &Arc<Shared<S>>) {
        // A forked child has no thread to end, and possibly a lock that no thread releases.
        if !shared.is_forked() {
            self.registry.leave(shared, || self.waker.wake());
        }
    }

    /// Sets the alarm for coalesced sends. Each burst sets it anew, so that it rings only if the
    /// application stops polling. Waking the thread by an eventfd instead would cost much of a
    /// sender's time at high message rates.
    pub(crate) fn set_alarm(&self) {
        self.alarm.set(ALARM_NS);
    }

    /// Wakes the thread to check immediately which engines need it.
    pub(crate) fn call(&self) {
        self.called.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Runs the thread until the last engine has left.
    pub(crate) fn run(&self) {
        while !self.registry.is_over() {
            let joined = self.registry.joined();
            let called = self.called.load(Ordering::Relaxed);
            let engines = self.registry.members();
            let rung = self.alarm.take();
            let (mut timeout, mut fds) = (IDLE_NS, vec![self.alarm.fd()]);
            for engine in &engines {
                let now = engine.clock.now_ns();
                let work = |now| {
                    let worked = catch_unwind(AssertUnwindSafe(|| engine.work(now, rung)));
                    // A panic poisoned the engine's lock: its callers get errors from now on.
                    worked.unwrap_or(now + IDLE_NS)
                };
                let mut next = work(now);
                if engine.is_away(now) && engine.arm() {
                    next = now; // polls and arms again, since a poll may disarm
                }
                timeout = timeout.min(next.saturating_sub(engine.clock.now_ns()));
                if engine.is_away(now) {
                    fds.extend(&engine.fds);
                }
            }
            let news = || {
                let calls = self.called.load(Ordering::Relaxed) != called;
                calls || self.registry.is_over() || self.registry.joined() != joined
            };
            self.waker.sleep_until(&fds, timeout, news);
        }
    }
}
