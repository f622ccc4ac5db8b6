//! Yields of the core to other processes, and detection of the application's poll gaps.

use crate::platform::event::Event;
use crate::platform::sync::{MutexGuard, Ordering};
use crate::platform::system::System;
use crate::progress::absence::ABSENCE_MIN_NS;
use crate::progress::cpu_yield::CpuOffer;
use crate::progress::receivers::Receivers;
use crate::progress::shared::Shared;

/// Longest sleep that waits for a packet while others run.
const NAP_MAX_NS: u64 = 1_000_000;
/// Longest sleep of a caller that awaits no packet: the awaited event may not end the sleep.
const BLINK_MAX_NS: u64 = 200_000;

impl<S: System> Shared<S> {
    /// Adapts an offer to the caller. Packets end a sleep, but messages in the MPI library's own
    /// shared memory do not (docs/design/progress.md).
    pub(crate) fn fit(&self, receivers: &Receivers<S::Rx>, offer: CpuOffer) -> CpuOffer {
        match offer {
            CpuOffer::Nap if !self.lock().awaits_packets() => receivers.offers.of_no_packets(offer),
            offer => offer,
        }
    }

    /// Lets another process run if one waits, and learns whether one did. Holds no lock meanwhile:
    /// kernels may return from a yield after seconds, during which the progress thread has to
    /// answer peers.
    pub(crate) fn offer_processor<'a>(
        &'a self,
        mut receivers: MutexGuard<'a, Receivers<S::Rx>>,
        offer: CpuOffer,
    ) -> MutexGuard<'a, Receivers<S::Rx>> {
        let sleep_max_ns = match offer {
            CpuOffer::Yield | CpuOffer::Question => 0,
            CpuOffer::Nap => NAP_MAX_NS,
            CpuOffer::Blink => BLINK_MAX_NS,
        };
        let naps = sleep_max_ns > 0;
        receivers.nappers += naps as u32;
        drop(receivers);
        let before = self.clock.now_ns();
        match naps {
            true => self.nap(before, sleep_max_ns),
            false => self.clock.yield_now(),
        }
        let took_ns = self.clock.now_ns() - before;
        let mut receivers = self.receivers();
        receivers.offers.made(offer, took_ns);
        if naps {
            receivers.want_all(); // any descriptor may have ended the sleep
            receivers.nappers -= 1;
            if receivers.nappers == 0 && std::mem::take(&mut receivers.called) {
                self.nap_event.iter().for_each(Event::clear);
            }
        }
        receivers
    }

    /// Lets another process run if one waits, for a caller of `Engine::look`; returns whether one
    /// ran.
    pub(crate) fn offer(&self) -> bool {
        let receivers = self.receivers();
        self.offer_processor(receivers, CpuOffer::Yield)
            .offers
            .was_taken()
    }

    /// If no packet waits: sleeps until a deadline or another thread's wake-up, at most
    /// [`NAP_MAX_NS`]. Packets by UDP do not end the sleep, as rails are not armed, so that many
    /// are received at once afterwards (docs/design/multicast.md).
    pub(crate) fn doze(&self) {
        let mut receivers = self.receivers();
        let mut held = None;
        if self.receive(&mut receivers, &mut held, false) == 0 {
            // Keeps the progress thread away, too, which would receive each packet as it arrives.
            let until = self.clock.now_ns() + NAP_MAX_NS;
            self.polled_ns.store(until, Ordering::Relaxed);
            drop(self.offer_processor(receivers, CpuOffer::Nap));
        }
    }

    /// Sleeps until a packet, another thread's wake-up, or a deadline: an ack for which a peer
    /// waits must not be delayed by the sleep.
    fn nap(&self, now: u64, max_ns: u64) {
        let due = self.lock().next_deadline().unwrap_or(u64::MAX);
        let nap_ns = due.saturating_sub(now).min(max_ns);
        match &self.nap_event {
            _ if nap_ns == 0 => self.clock.yield_now(),
            Some(event) => drop(event.wait(&self.fds, nap_ns)),
            None => self.clock.nap(&self.fds, nap_ns),
        }
    }

    /// Wakes sleeping threads whose packets this thread may have received.
    pub(crate) fn call_nappers(&self, receivers: &mut Receivers<S::Rx>) {
        if receivers.nappers > 0 && !std::mem::replace(&mut receivers.called, true) {
            self.nap_event.iter().for_each(Event::raise);
        }
    }

    /// Notes a poll of the application and the gap before it.
    pub(crate) fn note_gap(&self, receivers: &mut Receivers<S::Rx>, now: u64) {
        let last = self.polled_ns.swap(now, Ordering::Relaxed);
        let gap = now.saturating_sub(last);
        if gap > ABSENCE_MIN_NS && last != 0 {
            let hurried = receivers.absences.note(now, gap);
            self.hurried_ns
                .fetch_max(hurried.unwrap_or(0), Ordering::Relaxed);
        }
    }
}
