//! The engine with its lock, its sockets' receiving halves and its place with the progress
//! thread: one per libfabric domain (design rule 12).

use crate::api::{LogSink, SubmitError};
use crate::core::publish::Publisher;
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
use crate::state::core::{Core, CoreConfig};
use marline_rails::InterfaceWatch;

/// The thread's tick for an application that is away much, and while memory is open to peers.
const HURRIED_TICK_NS: u64 = 1_000_000;

/// Parts that are polled rarely: links and statistics.
pub(crate) struct Slow {
    pub(crate) interfaces: Option<InterfaceWatch>,
    pub(crate) publisher: Publisher,
    /// Hosts that are waited for.
    pub(crate) waits: Waits,
    /// Threads that make sums, if any are wanted.
    pub(crate) workers: Option<SumWorkers>,
    pub(crate) next_ns: u64,
    pub(crate) publish_ns: u64,
    /// Length of the slices of which every second one is without sums; 0: none is.
    pub(crate) slice_ns: u64,
    pub(crate) sums: bool,
}

/// One engine, shared by its callers and the progress thread.
pub(crate) struct Shared<S: System> {
    pub(crate) core: Mutex<Core<S>>,
    pub(crate) receivers: Mutex<Receivers<S::Rx>>,
    pub(crate) slow: Mutex<Slow>,
    /// Time, and what else the system gives.
    pub(crate) clock: S,
    /// When the application last polled.
    pub(crate) polled_ns: AtomicU64,
    /// Reads of a queue that may still be served from what is in it.
    pub(crate) skips: Skips,
    /// Polls in which nothing is awaited, as far as anybody can tell.
    pub(crate) sated: Skips,
    /// Polls after which a yield would only keep a peer waiting: it asked for something just now,
    /// and is likely to ask again.
    pub(crate) serving: Skips,
    /// See `Engine::expects_more`.
    pub(crate) landed: AtomicBool,
    /// Rails by which a broadcast may come that somebody waits for, as bits: they are polled each
    /// time.
    pub(crate) awaited: AtomicU32,
    pub(crate) tick_ns: u64,
    /// The thread ticks faster until then.
    pub(crate) hurried_ns: AtomicU64,
    /// Memory is open to peers, whose operations nobody here waits for.
    pub(crate) serves: AtomicBool,
    pub(crate) threaded: bool,
    /// Ends the sleep of threads for which another one took packets.
    pub(crate) nap_event: Option<Event>,
    pub(crate) generation: Generation,
    pub(crate) fds: Vec<i32>,
}

/// Everything that an engine is made of, besides its settings.
pub struct Parts<S: System> {
    /// Rails: name and sending half.
    pub rails: Vec<(String, S::Tx)>,
    /// Their receiving halves.
    pub halves: Vec<S::Rx>,
    /// The system.
    pub clock: S,
    /// The observer.
    pub watch: S::Watch,
    /// The progress thread's tick.
    pub tick_ns: u64,
    /// There is a progress thread.
    pub threaded: bool,
    /// Source of identities.
    pub random: Random,
    /// Where log lines go.
    pub log: LogSink,
}

#[cold]
fn after_panic<S: System>(
    poisoned: PoisonError<MutexGuard<'_, Core<S>>>,
) -> MutexGuard<'_, Core<S>> {
    let mut core = poisoned.into_inner();
    if !core.poisoned {
        core.poisoned = true;
        core.deregister_all(); // what they are of may be gone soon
        core.dir.ring(None);
    }
    core
}

impl<S: System> Shared<S> {
    /// An engine without links to watch and without a page of statistics.
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
            sated: Skips::new(),
            serving: Skips::new(),
            landed: AtomicBool::new(false),
            awaited: AtomicU32::new(0),
            tick_ns: parts.tick_ns,
            hurried_ns: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            threaded: parts.threaded,
            nap_event: None,
            generation: Generation::current(),
            fds: Vec::new(),
        }
    }

    /// The core; after a panic of another thread it is marked unusable.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core<S>> {
        self.core.lock().unwrap_or_else(after_panic)
    }

    /// The core, if calls may still use it.
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

    /// Before a sleep on the descriptors: has the rails tell of what comes. `true`: look once more
    /// before sleeping, as a rail asks for it, or somebody else looks at this moment.
    pub(crate) fn arm(&self) -> bool {
        match self.receivers.try_lock() {
            Ok(mut receivers) => receivers.arm(),
            Err(_) => true,
        }
    }

    /// The application has not polled for a tick.
    pub(crate) fn is_away(&self, now: u64) -> bool {
        now.saturating_sub(self.polled_ns.load(Ordering::Relaxed)) > self.tick(now)
    }

    /// The application goes to sleep on a bell: the thread takes over at once.
    pub(crate) fn leave(&self) {
        self.polled_ns.store(0, Ordering::Relaxed);
        self.clock.call();
    }

    /// When the thread looks again whether the application is away. Memory that is open to peers is
    /// served within a hurried tick of the last poll, not of the thread's last look.
    pub(crate) fn next_look(&self, now: u64) -> u64 {
        let tick = self.tick(now);
        if self.serves.load(Ordering::Relaxed) {
            let away = self.polled_ns.load(Ordering::Relaxed) + tick + 1;
            return away.clamp(now + 1, now + tick);
        }
        now + tick
    }

    /// The thread's tick now (see `absence`).
    pub(crate) fn tick(&self, now: u64) -> u64 {
        let hurries = now < self.hurried_ns.load(Ordering::Relaxed);
        match hurries || self.serves.load(Ordering::Relaxed) {
            true => self.tick_ns.min(HURRIED_TICK_NS),
            false => self.tick_ns,
        }
    }

    /// Memory was opened to peers or closed. The first that is opened calls the thread, which may
    /// have gone to sleep for a long tick.
    pub(crate) fn note_open(&self, open: bool) {
        if open && !self.serves.swap(open, Ordering::Relaxed) {
            self.clock.alarm();
        } else if !open {
            self.serves.store(false, Ordering::Relaxed);
        }
    }
}
