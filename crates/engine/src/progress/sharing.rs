//! Yields of the core to other processes, and detection of the application's poll gaps.

use crate::platform::event::Event;
use crate::platform::sync::{MutexGuard, Ordering};
use crate::platform::system::System;
use crate::progress::cpu_yield::CpuYield;
use crate::progress::poll::Held;
use crate::progress::poll_gap::DESCHEDULED_MIN_NS;
use crate::progress::receivers::{Pass, Receivers};
use crate::progress::shared::Shared;

/// Longest sleep that waits for a packet while other processes run.
const SLEEP_MAX_NS: u64 = 1_000_000;
/// Longest sleep of a caller that awaits no packet: the event that the caller awaits may not end
/// the sleep.
const SHORT_SLEEP_MAX_NS: u64 = 200_000;

impl<S: System> Shared<S> {
    /// Yields the core after an empty poll. Returns the number of datagrams that arrived before the
    /// yield; if there were any, no sleep follows.
    #[cold]
    pub(crate) fn yield_idle<'a>(
        &'a self,
        mut receivers: MutexGuard<'a, Receivers<S::Rx>>,
        held: &mut Held<'a, S>,
        due: CpuYield,
    ) -> (MutexGuard<'a, Receivers<S::Rx>>, usize) {
        let yield_cpu = self.fit(&receivers, due);
        let sleeps = matches!(yield_cpu, CpuYield::Sleep | CpuYield::ShortSleep);
        if sleeps && receivers.arm() {
            let taken = self.receive(&mut receivers, held, Pass::Poll);
            if taken > 0 {
                return (receivers, taken);
            }
        }
        debug_assert!(held.is_none(), "nothing came: the core is not locked");
        (self.yield_processor(receivers, yield_cpu), 0)
    }

    /// Adapts a yield to the caller: packets end a sleep, but messages in the MPI library's own
    /// shared memory do not (docs/design/progress.md).
    fn fit(&self, receivers: &Receivers<S::Rx>, yield_cpu: CpuYield) -> CpuYield {
        match yield_cpu {
            CpuYield::Sleep if !self.lock().awaits_packets() => {
                receivers.yields.of_no_packets(yield_cpu)
            }
            yield_cpu => yield_cpu,
        }
    }

    /// Lets another process run if one is waiting for the core, and learns whether one did. Holds
    /// no lock meanwhile: a yield may return only after seconds, during which the progress thread
    /// has to answer peers.
    pub(crate) fn yield_processor<'a>(
        &'a self,
        mut receivers: MutexGuard<'a, Receivers<S::Rx>>,
        yield_cpu: CpuYield,
    ) -> MutexGuard<'a, Receivers<S::Rx>> {
        let sleep_max_ns = match yield_cpu {
            CpuYield::Yield | CpuYield::Question => 0,
            CpuYield::Sleep => SLEEP_MAX_NS,
            CpuYield::ShortSleep => SHORT_SLEEP_MAX_NS,
        };
        let sleep_budget = sleep_max_ns > 0;
        receivers.sleepers += sleep_budget as u32;
        drop(receivers);
        let before = self.clock.now_ns();
        match sleep_budget {
            true => self.sleep(before, sleep_max_ns),
            false => self.clock.yield_now(),
        }
        let took_ns = self.clock.now_ns() - before;
        let mut receivers = self.receivers();
        receivers.yields.made(yield_cpu, took_ns);
        if sleep_budget {
            receivers.want_all(); // any descriptor may have ended the sleep
            receivers.sleepers -= 1;
            if receivers.sleepers == 0 && std::mem::take(&mut receivers.called) {
                self.sleep_event.iter().for_each(Event::clear);
            }
        }
        receivers
    }

    /// Lets another process run if one is waiting for the core, for a caller of `Engine::look`.
    /// Returns whether one ran.
    pub(crate) fn yield_cpu(&self) -> bool {
        let receivers = self.receivers();
        self.yield_processor(receivers, CpuYield::Yield)
            .yields
            .was_taken()
    }

    /// If no packet waits: sleeps until a deadline or another thread's wake-up, at most
    /// [`SLEEP_MAX_NS`]. Packets by UDP do not end the sleep, since rails are not armed; afterwards
    /// many are received at once (docs/design/multicast.md).
    pub(crate) fn sleep_briefly(&self) {
        let mut receivers = self.receivers();
        let mut held = None;
        if self.receive(&mut receivers, &mut held, Pass::Poll) == 0 {
            // Also keeps the progress thread away, which would receive each packet as it arrives.
            let until = self.clock.now_ns() + SLEEP_MAX_NS;
            self.polled_ns.store(until, Ordering::Relaxed);
            drop(self.yield_processor(receivers, CpuYield::Sleep));
        }
    }

    /// Sleeps until a packet arrives, another thread wakes this one, or a deadline is due: the
    /// sleep must not delay an ack for which a peer waits.
    fn sleep(&self, now: u64, max_ns: u64) {
        let due = self.lock().next_deadline().unwrap_or(u64::MAX);
        let sleep_ns = due.saturating_sub(now).min(max_ns);
        match &self.sleep_event {
            _ if sleep_ns == 0 => self.clock.yield_now(),
            Some(event) => drop(event.wait(&self.fds, sleep_ns)),
            None => self.clock.sleep(&self.fds, sleep_ns),
        }
    }

    /// Wakes sleeping threads, whose packets this thread may have received.
    pub(crate) fn wake_sleepers(&self, receivers: &mut Receivers<S::Rx>) {
        if receivers.sleepers > 0 && !std::mem::replace(&mut receivers.called, true) {
            self.sleep_event.iter().for_each(Event::raise);
        }
    }

    /// Notes a poll of the application and the gap before it.
    pub(crate) fn note_gap(&self, receivers: &mut Receivers<S::Rx>, now: u64) {
        let last = self.polled_ns.swap(now, Ordering::Relaxed);
        let gap = now.saturating_sub(last);
        if gap > DESCHEDULED_MIN_NS && last != 0 {
            let short_tick = receivers.gaps.note(now, gap);
            self.short_tick_until_ns
                .fetch_max(short_tick.unwrap_or(0), Ordering::Relaxed);
        }
    }
}
