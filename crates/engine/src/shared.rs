//! The engine with its lock, its sockets' receiving halves and its place with the progress
//! thread: one per libfabric domain (design rule 12).

use crate::api::{Completion, CqId, EpId, LogLevel, LogSink, SubmitError};
use crate::config::assemble::{core_config, open_rails};
use crate::config::profile::Tuned;
use crate::config::settings::Settings;
use crate::core::publish::Publisher;
use crate::core::state::{Core, CoreConfig, Random};
use crate::platform::clock::SystemClock;
use crate::platform::fork::Generation;
use crate::platform::random::random;
use crate::platform::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::platform::system::{Process, System};
use crate::progress::poll::Receivers;
use crate::progress::skips::Skips;
use marline_rails::{choose_interfaces, LinkWatch, RailFault, RailRx, RailTx};

/// The thread's tick for an application that is away much.
const HURRIED_TICK_NS: u64 = 1_000_000;
/// Reads of a queue that already has entries before the sockets are polled all the same.
const SKIPS_MAX: u32 = 8;
/// Time that the thread may work before others get the lock (design rule 2).
const HOLD_NS: u64 = 50_000;
/// Time within which a close waits for its sends to be acknowledged (design rule 11).
const CLOSE_NS: u64 = 2_000_000_000;
/// Time within which a close waits for peers to hear of it: whoever has not got the acks of what
/// arrived would otherwise find nobody to ask, and give up. A peer's thread answers within a tick;
/// half a second is for one that does not get the processor.
const PART_NS: u64 = 500_000_000;

/// What is polled rarely: links and statistics.
pub(crate) struct Slow {
    link: Option<LinkWatch>,
    publisher: Publisher,
    next_ns: u64,
    publish_ns: u64,
    /// Length of the slices of which every second one is without sums; 0: none is.
    slice_ns: u64,
    sums: bool,
}

/// One engine, shared by its callers and the progress thread.
pub(crate) struct Shared<S: System> {
    core: Mutex<Core<S>>,
    pub(crate) receivers: Mutex<Receivers<S::Rx>>,
    slow: Mutex<Slow>,
    /// Time, and what else the system gives.
    pub(crate) clock: S,
    /// When the application last polled.
    pub(crate) polled_ns: AtomicU64,
    /// Reads of a queue that may still be served from what is in it.
    skips: Skips,
    /// See `Engine::take_landed`.
    pub(crate) landed: AtomicBool,
    tick_ns: u64,
    /// The thread ticks faster until then.
    pub(crate) hurried_ns: AtomicU64,
    pub(crate) threaded: bool,
    generation: Generation,
    pub(crate) fds: Vec<i32>,
}

impl Shared<Process> {
    pub(crate) fn open(settings: &Settings, log: LogSink) -> Result<Shared<Process>, String> {
        settings.check()?;
        let choices = choose_interfaces(&settings.rails)?;
        let clock = SystemClock::new();
        let (rails, halves) = open_rails(settings, &choices)?;
        let names: Vec<String> = choices.iter().map(|c| c.name.clone()).collect();
        let mut fds: Vec<i32> = rails.iter().filter_map(|(_, tx)| tx.fd()).collect();
        let link = match LinkWatch::open(&choices) {
            Ok(link) => Some(link),
            Err(e) => {
                (log.0)(
                    LogLevel::Warn,
                    &format!("{e}; rails are judged by their traffic alone"),
                );
                None
            }
        };
        fds.extend(halves.iter().filter_map(RailRx::rest_fd));
        fds.extend(link.as_ref().map(LinkWatch::fd));
        for rail in settings.checksum_rails.unknown(&names) {
            let text = format!("FI_MARLINE_CHECKSUM_RAILS: {rail} is no rail of this process");
            (log.0)(LogLevel::Warn, &text);
        }
        let tuned = Tuned::open(settings, |level, text| (log.0)(level, text));
        let publisher = Publisher::open(settings, &log);
        let parts = Parts {
            rails,
            halves,
            clock: Process(clock),
            watch: (),
            tick_ns: settings.tick_ms * 1_000_000,
            threaded: settings.progress_thread,
            random: random(),
            log,
        };
        let mut shared = Shared::new(core_config(settings, &names, &tuned), parts);
        shared.slow = Mutex::new(Slow {
            link,
            publisher,
            next_ns: 0,
            publish_ns: 0,
            slice_ns: settings.checksum_slices_ms * 1_000_000,
            sums: true,
        });
        shared.fds = fds;
        Ok(shared)
    }
}

/// What an engine is made of, besides its settings.
pub struct Parts<S: System> {
    /// Rails: name and sending half.
    pub rails: Vec<(String, S::Tx)>,
    /// Their receiving halves.
    pub halves: Vec<S::Rx>,
    /// The system.
    pub clock: S,
    /// Who looks on.
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

impl<S: System> Shared<S> {
    /// An engine without links to watch and without a page of statistics.
    pub(crate) fn new(cfg: CoreConfig, parts: Parts<S>) -> Shared<S> {
        let core = Core::new(cfg, parts.rails, (parts.log, parts.random), parts.watch);
        Shared {
            core: Mutex::new(core),
            receivers: Mutex::new(Receivers::new(parts.halves)),
            slow: Mutex::new(Slow {
                link: None,
                publisher: Publisher::none(),
                next_ns: 0,
                publish_ns: 0,
                slice_ns: 0,
                sums: true,
            }),
            clock: parts.clock,
            polled_ns: AtomicU64::new(0),
            skips: Skips::new(),
            landed: AtomicBool::new(false),
            tick_ns: parts.tick_ns,
            hurried_ns: AtomicU64::new(0),
            threaded: parts.threaded,
            generation: Generation::current(),
            fds: Vec::new(),
        }
    }

    /// The core; after a panic of another thread it is marked unusable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core<S>> {
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            if !core.poisoned {
                core.poisoned = true;
                core.deregister_all(); // what they are of may be gone soon
            }
            core
        })
    }

    /// The core, if calls may still use it.
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

    /// Progress without reading a queue.
    pub(crate) fn progress(&self) {
        if !self.is_forked() {
            drop(self.poll());
        }
    }

    /// See `Engine::cq_read`.
    pub(crate) fn cq_read(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
        if self.is_forked() {
            return Ok(0);
        }
        // Entries left over from the last read go first, without a system call; but the sockets
        // are not forgotten over them.
        if self.skips.take() {
            let mut core = self.lock();
            let taken = drain(&mut core, cq, out);
            if taken != Ok(out.len()) {
                self.skips.end();
            }
            if taken != Ok(0) {
                core.coalescer.ended();
                if core.has_output() {
                    let now = self.clock.now_ns();
                    core.coalescer.polled(now);
                    core.flush(now);
                }
                return taken;
            }
        }
        let mut core = self.poll();
        let taken = drain(&mut core, cq, out);
        if taken == Ok(out.len()) && taken != Ok(0) {
            self.skips.refill(SKIPS_MAX);
        }
        if taken == Ok(0) && core.poisoned {
            return Err(()); // nothing will come: who waits has to be told
        }
        taken
    }

    /// Flushes a send, or leaves it to be collected with later ones. The first that is left sets
    /// the thread's alarm, for the application may compute before it calls again.
    /// `now`: the time, if it is known.
    pub(crate) fn after_send(
        &self,
        mut core: MutexGuard<'_, Core<S>>,
        now_please: bool,
        now: Option<u64>,
    ) {
        if now_please || !self.threaded {
            let now = now.unwrap_or_else(|| self.clock.now_ns());
            core.flush(now);
            return;
        }
        if core.coalescer.left(|| self.clock.now_ns()) {
            drop(core);
            self.clock.alarm();
        }
    }

    /// Whether the application has not polled for a tick.
    pub(crate) fn is_away(&self, now: u64) -> bool {
        now.saturating_sub(self.polled_ns.load(Ordering::Relaxed)) > self.tick(now)
    }

    /// The thread's tick now (see `absence`).
    fn tick(&self, now: u64) -> u64 {
        match now < self.hurried_ns.load(Ordering::Relaxed) {
            true => self.tick_ns.min(HURRIED_TICK_NS),
            false => self.tick_ns,
        }
    }

    /// The progress thread's turn; `rung`: its alarm went off. Works while there is something, in
    /// short holds of the lock; returns when to come back.
    pub(crate) fn work(&self, now: u64, rung: bool) -> u64 {
        let away = self.is_away(now);
        let mut core = self.lock();
        if core.coalescer.stranded(now, self.tick(now), rung) && !core.poisoned {
            core.stats.thread_calls += 1;
            core.flush(now);
        }
        drop(core);
        self.slow_work(now);
        if !away {
            return now + self.tick(now);
        }
        let end = now + HOLD_NS;
        loop {
            let mut held = None;
            let taken = match self.receivers.try_lock() {
                Ok(mut receivers) => {
                    receivers.want_all();
                    self.receive(&mut receivers, &mut held, true)
                }
                Err(_) => return now + self.tick(now), // somebody polls after all
            };
            let now = self.clock.now_ns();
            let mut core = held.map_or_else(|| self.lock(), |(core, _)| core);
            if core.poisoned {
                return now + self.tick(now);
            }
            core.stats.thread_takeovers += (taken > 0) as u64;
            core.stats.thread_wakeups += 1;
            core.on_poll(now, true);
            if taken == 0 {
                core.caught_up();
            }
            core.tick(now);
            core.flush(now);
            let next = core
                .next_deadline()
                .unwrap_or(u64::MAX)
                .min(now + self.tick_ns);
            drop(core);
            if taken == 0 || now > end {
                return if taken == 0 { next } else { now };
            }
        }
    }

    /// Links every tick, statistics every tenth.
    pub(crate) fn slow_work(&self, now: u64) {
        let Ok(mut slow) = self.slow.try_lock() else {
            return;
        };
        if now < slow.next_ns {
            return;
        }
        slow.next_ns = now + self.tick_ns / 2;
        while let Some((rail, fault)) = slow.link.as_mut().and_then(LinkWatch::poll) {
            let mut core = self.lock();
            if core.poisoned {
                continue;
            }
            core.set_rail(now, rail, fault == RailFault::Up);
            core.settle();
            core.flush(now);
        }
        let sums = slow.slice_ns == 0 || now / slow.slice_ns % 2 == 0;
        if sums != slow.sums {
            slow.sums = sums;
            self.lock().set_sums(sums);
        }
        if now >= slow.publish_ns {
            slow.publish_ns = now + 100_000_000;
            let core = self.lock();
            slow.publisher.publish(&core);
        }
    }

    /// Publishes once more, at the end, and reports if that was asked for.
    pub(crate) fn publish_last(&self) {
        if let Ok(mut slow) = self.slow.lock() {
            slow.publisher.publish(&self.lock());
            if let Some(text) = slow.publisher.report() {
                self.lock().say(LogLevel::Report, &text);
            }
        }
    }

    /// Publishes at once when peers have died.
    pub(crate) fn publish_deaths(&self) {
        if let Ok(mut slow) = self.slow.lock() {
            slow.publisher.publish_deaths(&self.lock());
        }
    }

    /// Drains the endpoint's sends, says goodbye, and forgets it.
    pub(crate) fn ep_close(&self, ep: EpId) {
        if self.is_forked() {
            return;
        }
        // What another thread posts after the drain would be taken, and never leave.
        if let Some(endpoint) = self.lock().ep(ep) {
            endpoint.enabled = false;
        }
        let start = self.clock.now_ns();
        let mut drained = false;
        while !drained && self.clock.now_ns() < start + CLOSE_NS {
            let mut core = self.poll();
            drained = core.poisoned || core.ep(ep).is_none_or(|e| e.node.drained());
        }
        let now = self.clock.now_ns();
        let mut core = self.lock();
        if !drained {
            core.say_undelivered(ep);
        }
        if let Some(endpoint) = core.ep(ep).filter(|_| !self.is_forked()) {
            endpoint.node.say_bye();
            core.flush(now);
        }
        let parted =
            |core: &mut Core<S>| core.poisoned || core.ep(ep).is_none_or(|e| e.node.parted());
        while !parted(&mut core) && self.clock.now_ns() < now + PART_NS {
            drop(core);
            core = self.poll();
        }
        core.keep_totals(ep);
        core.ep_forget(ep);
    }
}

/// Moves finished operations out, up to the first error.
fn drain<S: System>(core: &mut Core<S>, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
    let Some(queue) = core.cq(cq) else {
        return Ok(0);
    };
    let mut n = 0;
    while n < out.len() {
        match queue.front() {
            None => break,
            Some(entry) if entry.error.is_some() => {
                return if n == 0 { Err(()) } else { Ok(n) };
            }
            Some(_) => {}
        }
        if let Some(entry) = queue.pop_front() {
            out[n] = entry;
            n += 1;
        }
    }
    Ok(n)
}
