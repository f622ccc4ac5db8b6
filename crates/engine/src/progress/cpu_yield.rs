//! Decides when and how to yield the core to other processes, from the results of earlier yields.

/// Bounds of the number of consecutive empty polls before a yield. Another rank may be waiting for
/// the core, and polling on costs it a scheduler slice of 4 ms; but a yield that returns at once
/// helped no process. The number adapts between the bounds.
const AFTER_MIN: u32 = 16;
const AFTER_MAX: u32 = 1_024;
/// A yield that took longer than this let another process run.
const SHARED_NS: u64 = 10_000;
/// A yield that took longer than this let a computing process run for much of its slice. A process
/// that polls, like this one, yields sooner.
const COMPUTES_NS: u64 = 1_000_000;
/// After a yield that let another process run, the next 16 offers are sleeps until a packet
/// arrives, counted in units of which a `Nap` takes 16 and the shorter `Blink` one. Processes that
/// only yield in a loop starve each other under the scheduler of Linux 6.18: ranks of Open MPI
/// (which yields by itself, too) on oversubscribed cores, and their progress threads, did not run
/// for seconds and were declared dead. Sleeping processes do not suffer from this.
const NAPS: u32 = 16 * NAP;
const NAP: u32 = 16;
const BLINK: u32 = 1;
/// A ping-pong has too few consecutive empty polls to notice that no process wants the core any
/// more: MPICH would then yield after every poll because of one slow yield among thousands. So a
/// yield is tried after this many empty polls that need not be consecutive, and after twice as many
/// each time another process did want the core, because a try may cost a slice of 4 ms.
const ASK_AFTER_MIN: u32 = 16;
const ASK_AFTER_MAX: u32 = 1 << 20;

/// A way to yield the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuOffer {
    /// A yield after many consecutive empty polls.
    Yield,
    /// A yield between packets that tests whether another process wants the core.
    Question,
    /// Sleep until a packet arrives: another process wants the core.
    Nap,
    /// Short sleep, for an event that may not end a sleep.
    Blink,
}

/// Results of earlier yields.
pub(crate) struct YieldPolicy {
    /// Consecutive empty polls, and the number that leads to a yield.
    empty: u32,
    after: u32,
    /// Empty polls since the last yield, and the number that leads to a `Question`.
    unasked: u32,
    ask_after: u32,
    /// Remaining sleeps, in units of `BLINK`.
    naps: u32,
    /// True if the process that took the core last was computing.
    computes: bool,
}

impl YieldPolicy {
    pub(crate) fn new() -> YieldPolicy {
        YieldPolicy {
            empty: 0,
            after: AFTER_MIN,
            unasked: 0,
            ask_after: ASK_AFTER_MIN,
            naps: 0,
            computes: false,
        }
    }

    /// True if recent yields found no other process.
    pub(crate) fn is_alone(&self) -> bool {
        self.after == AFTER_MAX
    }

    /// True if another process took the core recently.
    pub(crate) fn was_taken(&self) -> bool {
        self.naps > 0
    }

    /// The offer for a caller that awaits no packets. Other waiting processes return the core soon;
    /// from a computing one a sleeper gets it back sooner than a process that yielded.
    pub(crate) fn of_no_packets(&self, offer: CpuOffer) -> CpuOffer {
        match (offer, self.computes) {
            (CpuOffer::Nap, true) => CpuOffer::Blink,
            (CpuOffer::Nap, false) => CpuOffer::Yield,
            (offer, _) => offer,
        }
    }

    /// Counts a poll with `taken` packets.
    pub(crate) fn count(&mut self, taken: usize) {
        if taken == 0 {
            self.empty += 1;
            self.unasked = self.unasked.saturating_add(1);
        } else {
            self.empty = 0;
        }
    }

    /// Counts the last empty poll and the next one as one.
    pub(crate) fn look_again(&mut self) {
        self.empty -= 1;
    }

    /// The offer that is due after an empty poll.
    pub(crate) fn due(&self) -> Option<CpuOffer> {
        if self.empty >= self.after {
            Some(if self.naps > 0 {
                CpuOffer::Nap
            } else {
                CpuOffer::Yield
            })
        } else if self.unasked >= self.ask_after && !self.is_alone() {
            Some(CpuOffer::Question)
        } else {
            None
        }
    }

    /// Records an offer and the nanoseconds until the core came back.
    pub(crate) fn made(&mut self, offer: CpuOffer, took_ns: u64) {
        (self.empty, self.unasked) = (0, 0);
        let slept = match offer {
            CpuOffer::Nap => NAP,
            CpuOffer::Blink => BLINK,
            CpuOffer::Yield | CpuOffer::Question => 0,
        };
        if slept > 0 {
            // Two threads may have slept at the same time, or another thread's yield may have ended
            // the sleeps.
            self.naps = self.naps.saturating_sub(slept);
        } else if took_ns > SHARED_NS {
            (self.after, self.naps) = (AFTER_MIN, NAPS);
            self.computes = took_ns >= COMPUTES_NS;
            if offer == CpuOffer::Question {
                self.ask_after = (2 * self.ask_after).min(ASK_AFTER_MAX);
            }
        } else {
            (self.after, self.naps) = ((2 * self.after).min(AFTER_MAX), 0);
            self.ask_after = (self.ask_after / 2).max(ASK_AFTER_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls as in a ping-pong, with three empty polls before each of `packets` packets, where
    /// offers take `took_ns`; returns the number of offers.
    fn ping_pong(offers: &mut YieldPolicy, packets: usize, took_ns: u64) -> usize {
        let mut made = 0;
        for taken in [0, 0, 0, 1].into_iter().cycle().take(4 * packets) {
            offers.count(taken);
            if let Some(offer) = offers.due().filter(|_| taken == 0) {
                offers.made(offer, took_ns);
                made += 1;
            }
        }
        made
    }

    #[test]
    fn a_ping_pong_learns_that_no_process_wants_the_core() {
        let mut offers = YieldPolicy::new();
        ping_pong(&mut offers, 50, 300);
        assert!(offers.is_alone());
        offers.made(CpuOffer::Yield, 4_000_000);
        assert!(!offers.is_alone());
        ping_pong(&mut offers, 50, 300);
        assert!(offers.is_alone());
    }

    #[test]
    fn questions_become_rarer_beside_another_process() {
        let mut offers = YieldPolicy::new();
        let (early, late) = (
            ping_pong(&mut offers, 1_000, 4_000_000),
            ping_pong(&mut offers, 100_000, 4_000_000),
        );
        assert!(early < 10 && late < 10, "{early} {late}");
        ping_pong(&mut offers, 1_000_000, 300);
        assert!(offers.is_alone());
    }

    #[test]
    fn alone_only_a_long_wait_yields() {
        let mut offers = YieldPolicy::new();
        ping_pong(&mut offers, 50, 300);
        assert_eq!(ping_pong(&mut offers, 10_000, 300), 0);
        (0..AFTER_MAX).for_each(|_| offers.count(0));
        assert_eq!(offers.due(), Some(CpuOffer::Yield));
    }

    #[test]
    fn a_sleep_may_end_after_a_yield_of_another_thread() {
        let mut offers = YieldPolicy::new();
        offers.made(CpuOffer::Yield, 4_000_000);
        offers.made(CpuOffer::Question, 300);
        offers.made(CpuOffer::Nap, 1_000_000);
        (0..AFTER_MAX).for_each(|_| offers.count(0));
        assert_eq!(offers.due(), Some(CpuOffer::Yield));
    }

    #[test]
    fn sleeps_follow_a_yield_that_let_another_process_run() {
        let mut offers = YieldPolicy::new();
        offers.made(CpuOffer::Yield, 4_000_000);
        for _ in 0..NAPS / NAP {
            (0..AFTER_MIN).for_each(|_| offers.count(0));
            assert_eq!(offers.due(), Some(CpuOffer::Nap));
            offers.made(CpuOffer::Nap, 1_000_000);
        }
        (0..AFTER_MIN).for_each(|_| offers.count(0));
        assert_eq!(offers.due(), Some(CpuOffer::Yield));
    }

    #[test]
    fn without_awaited_packets_sleeps_are_short_and_only_beside_computing_processes() {
        let mut offers = YieldPolicy::new();
        offers.made(CpuOffer::Yield, COMPUTES_NS - 1);
        assert_eq!(offers.of_no_packets(CpuOffer::Nap), CpuOffer::Yield);
        assert_eq!(offers.of_no_packets(CpuOffer::Question), CpuOffer::Question);
        offers.made(CpuOffer::Yield, COMPUTES_NS);
        assert_eq!(offers.of_no_packets(CpuOffer::Nap), CpuOffer::Blink);
        for _ in 0..NAPS {
            assert!(offers.was_taken());
            offers.made(CpuOffer::Blink, 200_000);
        }
        assert!(!offers.was_taken());
    }
}
