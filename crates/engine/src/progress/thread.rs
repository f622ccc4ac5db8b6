//! The progress thread: one per process, for all its engines (design rule 2). While the
//! application polls it only ticks; when nobody polled for a tick it sleeps on the rails'
//! descriptors and acts on what comes, so that acks, repairs and grants go on while the
//! application computes.

use crate::platform::event::Alarm;
use crate::platform::sync::{Arc, AtomicU32, Builder, Ordering};
use crate::platform::system::System;
use crate::progress::registry::Registry;
use crate::progress::shared::Shared;
use crate::progress::waker::Waker;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A burst that is collected leaves after this at the latest: 200 us are promised (design rule 3),
/// waking up takes up to 50.
const ALARM_NS: u64 = 100_000;
/// Longest sleep with no engine about.
const IDLE_NS: u64 = 100_000_000;

/// Engines of one kind, the thread that looks after them, and what wakes it. `tests/shared` runs it
/// with threads, time and rails of a model checker.
pub(crate) struct ProgressThread<S: System> {
    registry: Registry<Shared<S>>,
    waker: Waker,
    alarm: Alarm,
    /// Calls, ever: one that comes while the thread looks is not forgotten.
    called: AtomicU32,
}

impl<S: System> ProgressThread<S> {
    /// No engines, and no thread.
    pub(crate) fn new() -> Result<ProgressThread<S>, String> {
        Ok(ProgressThread {
            registry: Registry::new(),
            waker: Waker::new()?,
            alarm: Alarm::new()?,
            called: AtomicU32::new(0),
        })
    }

    /// Adds an engine; a thread that does `run` is started if there is none.
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

    /// Takes an engine out; the last one ends the thread.
    pub(crate) fn leave(&self, shared: &Arc<Shared<S>>) {
        // A child of a fork has no thread to end, and maybe a lock that nobody releases.
        if !shared.is_forked() {
            self.registry.leave(shared, || self.waker.wake());
        }
    }

    /// Has the thread look for collected sends in a moment. Set again for each burst, it goes off
    /// only when the application stays away; a call to the thread instead (an eventfd) took a third
    /// of the sender's time at 0.8 million messages/s.
    pub(crate) fn set_alarm(&self) {
        self.alarm.set(ALARM_NS);
    }

    /// Has the thread look now who needs it.
    pub(crate) fn call(&self) {
        self.called.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }

    /// The work of the thread, until the last engine has left.
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
                    next = now; // looks again and arms again: a look may undo what arming did
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
