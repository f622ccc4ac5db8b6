//! The progress thread's turn, and rare work: interfaces and statistics.

use crate::api::LogLevel;
use crate::platform::system::System;
use crate::progress::receivers::Pass;
use crate::progress::shared::Shared;
use marline_rails::InterfaceChange;

/// Time for which the thread may work before other threads get the lock.
const HOLD_NS: u64 = 50_000;

impl<S: System> Shared<S> {
    /// Runs the progress thread's turn; `rung`: its alarm rang. Works while there are packets, in
    /// short holds of the lock. Returns the time of the next turn.
    pub(crate) fn work(&self, now: u64, rung: bool) -> u64 {
        let away = self.is_away(now);
        let mut core = self.lock();
        if core.coalescer.stranded(now, self.tick(now), rung) && !core.poisoned {
            core.counters.process.thread_calls += 1;
            core.flush(now);
        }
        drop(core);
        self.slow_work(now);
        if !away {
            return self.next_look(now);
        }
        let end = now + HOLD_NS;
        loop {
            let mut held = None;
            let taken = match self.receivers.try_lock() {
                Ok(mut receivers) => {
                    receivers.want_all();
                    self.receive(&mut receivers, &mut held, Pass::Thread)
                }
                Err(_) => return self.next_look(now), // another thread polls after all
            };
            let now = self.clock.now_ns();
            let mut core = held.map_or_else(|| self.lock(), |(core, _)| core);
            if core.poisoned {
                return now + self.tick(now);
            }
            core.counters.process.thread_takeovers += (taken > 0) as u64;
            core.counters.process.thread_wakeups += 1;
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

    /// Checks interfaces every tick, and publishes statistics every tenth.
    pub(crate) fn slow_work(&self, now: u64) {
        let Ok(mut slow) = self.slow.try_lock() else {
            return;
        };
        if now < slow.next_ns {
            return;
        }
        slow.next_ns = now + self.tick_ns / 2;
        if let Some(watch) = slow.interfaces.as_mut() {
            while let Some((rail, change)) = watch.poll() {
                let goes_on = self.on_change(now, rail, &change);
                match &change {
                    InterfaceChange::Address(other) if goes_on => watch.follow(rail, other),
                    InterfaceChange::Address(_) => watch.decline(rail),
                    InterfaceChange::State(_) | InterfaceChange::Name(_) => {}
                }
            }
        }
        if let Some(workers) = slow.workers.as_mut() {
            workers.tend(now);
        }
        let sums = slow.slice_ns == 0 || now / slow.slice_ns % 2 == 0;
        if sums != slow.sums {
            slow.sums = sums;
            self.lock().set_sums(sums);
        }
        if now >= slow.publish_ns {
            slow.publish_ns = now + 100_000_000;
            let mut core = self.lock();
            slow.publisher.publish(&core);
            slow.waits.report(now, &mut core);
        }
    }

    /// Handles a change of a rail's interface. Returns whether the rail continues with it.
    pub(crate) fn on_change(&self, now: u64, rail: usize, change: &InterfaceChange) -> bool {
        let mut core = self.lock();
        if core.poisoned {
            return false;
        }
        let goes_by_it = match change {
            InterfaceChange::State(fault) => {
                core.on_rail_fault(now, rail, *fault);
                true
            }
            InterfaceChange::Address(other) => core.move_rail(now, rail, other),
            InterfaceChange::Name(name) => {
                core.rename_rail(rail, name);
                true
            }
        };
        core.settle();
        core.flush(now);
        goes_by_it
    }

    /// Ends the checksum threads.
    pub(crate) fn end_workers(&self) {
        if let Ok(mut slow) = self.slow.lock() {
            slow.workers = None;
        }
    }

    /// Publishes a last time, and prints the report if enabled.
    pub(crate) fn publish_last(&self) {
        if let Ok(mut slow) = self.slow.lock() {
            slow.publisher.publish_all(&self.lock());
            if let Some(text) = slow.publisher.report() {
                self.lock().say(LogLevel::Report, &text);
            }
        }
    }

    /// Publishes immediately if peers have died.
    pub(crate) fn publish_deaths(&self) {
        if let Ok(mut slow) = self.slow.lock() {
            slow.publisher.publish_deaths(&self.lock());
        }
    }
}
