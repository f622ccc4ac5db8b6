//! The engine with its lock, its sockets' receiving halves and its registration with the progress
//! thread: one per libfabric domain.

use crate::api::{LogSink, SubmitError};
use crate::core::publish::Publisher;
use crate::core::{Core, CoreConfig};
use crate::platform::event::Event;
use crate::platform::fork::Generation;
use crate::platform::random::Random;
use crate::platform::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError,
};
use crate::platform::system::System;
use crate::progress::receivers::Receivers;
use crate::progress::skips::Skips;
use crate::progress::sum_workers::SumWorkers;
use crate::progress::waits::Waits;
use marline_rails::InterfaceWatch;

/// The thread's tick for a descheduled application, and while memory is open to peers.
const SHORT_TICK_NS: u64 = 1_000_000;

/// Parts that are polled rarely: interfaces and statistics.
pub(crate) struct Slow {
    pub(crate) interfaces: Option<InterfaceWatch>,
    pub(crate) publisher: Publisher,
    /// Hosts with silent peers that operations wait for.
    pub(crate) waits: Waits,
    /// Checksum threads, if enabled.
    pub(crate) workers: Option<SumWorkers>,
    pub(crate) next_ns: u64,
    pub(crate) publish_ns: u64,
    /// Length in ns of the slices of time, every second of which is without checksums; 0: none.
    pub(crate) slice_ns: u64,
    pub(crate) sums: bool,
}

/// An engine, shared by its callers and the progress thread.
pub(crate) struct Shared<S: System> {
    pub(crate) core: Mutex<Core<S>>,
    pub(crate) receivers: Mutex<Receivers<S::Rx>>,
    pub(crate) slow: Mutex<Slow>,
    /// Clock and other services of the system.
    pub(crate) clock: S,
    /// Time of the application's last poll.
    pub(crate) polled_ns: AtomicU64,
    /// Reads of a queue that may be served from its entries without a poll.
    pub(crate) skips: Skips,
    /// Remaining polls that look at the sockets, once each, although no packet is awaited.
    pub(crate) app_poll_budget: Skips,
    /// Remaining polls without a yield after peers were served, which are likely to ask again.
    pub(crate) serve_poll_budget: Skips,
    /// True if polls received bytes of long messages since `Engine::expects_more` was last called.
    pub(crate) landed: AtomicBool,
    /// Rails on which an awaited broadcast may arrive, as bits: every poll covers them.
    pub(crate) awaited: AtomicU32,
    pub(crate) tick_ns: u64,
    /// End of the time with the faster tick.
    pub(crate) short_tick_until_ns: AtomicU64,
    /// True while memory is open to peers: no local call may be waiting while they access it.
    pub(crate) serves: AtomicBool,
    pub(crate) threaded: bool,
    /// Wakes sleeping threads whose packets another thread has taken.
    pub(crate) sleep_event: Option<Event>,
    pub(crate) generation: Generation,
    pub(crate) fds: Vec<i32>,
}

/// The parts of an engine besides its settings.
pub struct Parts<S: System> {
    /// Rails: name and sending half.
    pub rails: Vec<(String, S::Tx)>,
    /// The receiving halves of the rails.
    pub halves: Vec<S::Rx>,
    /// The system.
    pub clock: S,
    /// The observer.
    pub watch: S::Watch,
    /// The progress thread's tick.
    pub tick_ns: u64,
    /// True if there is a progress thread.
    pub threaded: bool,
    /// Source of random identities.
    pub random: Random,
    /// Destination of log lines.
    pub log: LogSink,
}

#[cold]
fn after_panic<S: System>(
    poisoned: PoisonError<MutexGuard<'_, Core<S>>>,
) -> MutexGuard<'_, Core<S>> {
    let mut core = poisoned.into_inner();
    if !core.poisoned {
        core.poisoned = true;
        core.deregister_all(); // the program may free this memory soon
        core.dir.ring(None);
    }
    core
}

impl<S: System> Shared<S> {
    /// Creates an engine that watches no interfaces and publishes no statistics page.
    pub(crate) fn new(cfg: CoreConfig, parts: Parts<S>) -> Shared<S> {
        let core = Core::new(cfg, parts.rails, (parts.log, parts.random), parts.watch);
        Shared {
            core: Mutex::new(core),
            receivers: Mutex::new(Receivers::new(parts.halves)),
            slow: Mutex::new(Slow {
                interfaces: None,
                publisher: Publisher::none(),
                waits: Waits::new(false),
                workers: None,
                next_ns: 0,
                publish_ns: 0,
                slice_ns: 0,
                sums: true,
            }),
            clock: parts.clock,
            polled_ns: AtomicU64::new(0),
            skips: Skips::new(),
            app_poll_budget: Skips::new(),
            serve_poll_budget: Skips::new(),
            landed: AtomicBool::new(false),
            awaited: AtomicU32::new(0),
            tick_ns: parts.tick_ns,
            short_tick_until_ns: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            threaded: parts.threaded,
            sleep_event: None,
            generation: Generation::current(),
            fds: Vec::new(),
        }
    }

    /// Locks the core and marks it unusable after a panic of another thread.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core<S>> {
        self.core.lock().unwrap_or_else(after_panic)
    }

    /// Locks the core, unless it must not be used after a fork or a panic.
    #[inline]
    pub(crate) fn usable(&self) -> Result<MutexGuard<'_, Core<S>>, SubmitError> {
        if self.generation.is_forked() {
            return Err(SubmitError::Unusable);
        }
        let core = self.lock();
        if core.poisoned {
            return Err(SubmitError::Unusable);
        }
        Ok(core)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.generation.is_forked()
    }

    /// Arms the rails before a sleep on the descriptors. `true`: poll once more before sleeping,
    /// because a rail requires it or because another thread is polling at this moment.
    pub(crate) fn arm(&self) -> bool {
        match self.receivers.try_lock() {
            Ok(mut receivers) => receivers.arm(),
            Err(_) => true,
        }
    }

    /// True if the application has not polled for a tick.
    pub(crate) fn is_away(&self, now: u64) -> bool {
        now.saturating_sub(self.polled_ns.load(Ordering::Relaxed)) > self.tick(now)
    }

    /// Hands progress over to the thread immediately, before the application sleeps on a bell.
    pub(crate) fn leave(&self) {
        self.polled_ns.store(0, Ordering::Relaxed);
        self.clock.call();
    }

    /// Time of the thread's next check for a poll gap. While memory is open to peers, the check is
    /// due one short tick after the application's last poll, otherwise one tick after this check.
    pub(crate) fn next_look(&self, now: u64) -> u64 {
        let tick = self.tick(now);
        if self.serves.load(Ordering::Relaxed) {
            let away = self.polled_ns.load(Ordering::Relaxed) + tick + 1;
            return away.clamp(now + 1, now + tick);
        }
        now + tick
    }

    /// The thread's current tick (see `poll_gap`).
    pub(crate) fn tick(&self, now: u64) -> u64 {
        let short = now < self.short_tick_until_ns.load(Ordering::Relaxed);
        match short || self.serves.load(Ordering::Relaxed) {
            true => self.tick_ns.min(SHORT_TICK_NS),
            false => self.tick_ns,
        }
    }

    /// Notes whether memory is open to peers. The first opening wakes the thread, which may be
    /// sleeping for a long tick.
    pub(crate) fn note_open(&self, open: bool) {
        if open && !self.serves.swap(open, Ordering::Relaxed) {
            self.clock.alarm();
        } else if !open {
            self.serves.store(false, Ordering::Relaxed);
        }
    }
}
