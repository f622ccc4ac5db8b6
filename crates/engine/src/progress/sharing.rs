//! Beside the loop of polls: the processor is offered to others, and absences of the
//! application are noted.

use crate::platform::sync::Ordering;
use crate::platform::system::System;
use crate::progress::absence::ABSENCE_MIN_NS;
use crate::progress::cpu_yield::CpuOffer;
use crate::progress::receivers::Receivers;
use crate::progress::shared::Shared;

/// Longest nap that waits for a packet while others run.
const NAP_MAX_NS: u64 = 1_000_000;

impl<S: System> Shared<S> {
    /// Lets another process run if one waits, and learns whether one does. No lock is held
    /// meanwhile: kernels let a process that offers its processor wait for seconds (5 s seen on
    /// Linux 6.18 with twice as many busy processes as cores), and the progress thread has to
    /// answer its peers for it.
    pub(crate) fn offer_processor(&self, offer: CpuOffer) {
        let before = self.clock.now_ns();
        match offer {
            CpuOffer::Nap => self.clock.nap(&self.fds, NAP_MAX_NS),
            CpuOffer::Yield | CpuOffer::Question => self.clock.yield_now(),
        }
        let took_ns = self.clock.now_ns() - before;
        self.receivers().offers.made(offer, took_ns);
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
