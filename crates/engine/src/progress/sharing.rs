//! Beside the loop of polls: the processor is offered to others, and absences of the
//! application are noted.

use crate::platform::event::Event;
use crate::platform::sync::{MutexGuard, Ordering};
use crate::platform::system::System;
use crate::progress::absence::ABSENCE_MIN_NS;
use crate::progress::cpu_yield::CpuOffer;
use crate::progress::receivers::Receivers;
use crate::progress::shared::Shared;

/// Longest nap that waits for a packet while others run.
const NAP_MAX_NS: u64 = 1_000_000;
/// The same of one who awaits none, and may miss what it waits for.
const BLINK_MAX_NS: u64 = 200_000;

impl<S: System> Shared<S> {
    /// The offer that fits who makes it. What ends a nap is a packet; what comes in the MPI's own
    /// shared memory does not (docs/design/progress.md).
    pub(crate) fn fit(&self, receivers: &Receivers<S::Rx>, offer: CpuOffer) -> CpuOffer {
        match offer {
            CpuOffer::Nap if !self.lock().awaits_packets() => receivers.offers.of_no_packets(offer),
            offer => offer,
        }
    }

    /// Lets another process run if one waits, and learns whether one does. No lock is held
    /// meanwhile: kernels let a process that offers its processor wait for seconds, and the
    /// progress thread has to answer its peers for it.
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
            receivers.want_all(); // whatever ended the sleep
            receivers.nappers -= 1;
            if receivers.nappers == 0 && std::mem::take(&mut receivers.called) {
                self.nap_event.iter().for_each(Event::clear);
            }
        }
        receivers
    }

    /// Lets another process run if one waits, for a caller of `Engine::look`; whether one did.
    pub(crate) fn offer(&self) -> bool {
        let receivers = self.receivers();
        self.offer_processor(receivers, CpuOffer::Yield)
            .offers
            .was_taken()
    }

    /// If no packet waits: sleeps until something is due or another thread calls, and at most
    /// [`NAP_MAX_NS`]. What comes by UDP meanwhile does not end it, as rails are not armed: many
    /// packets are taken at once then (docs/design/multicast.md).
    pub(crate) fn doze(&self) {
        let mut receivers = self.receivers();
        let mut held = None;
        if self.receive(&mut receivers, &mut held, false) == 0 {
            // Nor does the thread, which would take each of them as it comes.
            let until = self.clock.now_ns() + NAP_MAX_NS;
            self.polled_ns.store(until, Ordering::Relaxed);
            drop(self.offer_processor(receivers, CpuOffer::Nap));
        }
    }

    /// Sleeps until a packet comes, another thread calls, or something is due: an ack that a peer
    /// waits for must not wait for the end of the sleep.
    fn nap(&self, now: u64, max_ns: u64) {
        let due = self.lock().next_deadline().unwrap_or(u64::MAX);
        let nap_ns = due.saturating_sub(now).min(max_ns);
        match &self.nap_event {
            _ if nap_ns == 0 => self.clock.yield_now(),
            Some(event) => drop(event.wait(&self.fds, nap_ns)),
            None => self.clock.nap(&self.fds, nap_ns),
        }
    }

    /// Ends the sleep of threads for which this one may have taken packets.
    pub(crate) fn call_nappers(&self, receivers: &mut Receivers<S::Rx>) {
        if receivers.nappers > 0 && !std::mem::replace(&mut receivers.called, true) {
            self.nap_event.iter().for_each(Event::raise);
        }
    }

    /// The application looks at the rails now; if it had not for long, that is noted.
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
