//! When to offer the processor to others, and how: learnt from what came of the last offers.

/// Empty polls in a row after which the processor is offered: another rank may be waiting for it,
/// and spinning in vain costs it a slice of 4 ms. The number is learnt within these bounds: an
/// offer that came back at once was for nobody (and cost 0.3-0.8 us).
const AFTER_MIN: u32 = 16;
const AFTER_MAX: u32 = 1_024;
/// A yield that took so long let somebody else run.
const SHARED_NS: u64 = 10_000;
/// It was somebody who computes, and kept the processor for a good part of a slice. Who waits, as
/// we do, gives it back sooner.
const COMPUTES_NS: u64 = 1_000_000;
/// After a yield that let somebody run 16 offers are naps: sleeps until a packet comes. Of what is
/// counted here a nap takes 16, and a blink, which is shorter, one.
/// Processes that yield in a loop starve each other on Linux 6.18: of 8 ranks of Open MPI (which
/// yields by itself, too) on 2 cores some did not run for 5-58 s, neither of their threads, and
/// were taken for dead. Who sleeps is spared that: the same job took 0.3-1.1 s instead of 2-17 s,
/// but 5-13 s with naps of 20 us.
const NAPS: u32 = 16 * NAP;
const NAP: u32 = 16;
const BLINK: u32 = 1;
/// A ping-pong has too few empty polls in a row to learn that nobody wants its processor any more:
/// after one yield in thousands that took long it yielded, as MPICH does, between any two looks. So
/// it asks after so many empty polls that were not in a row, after twice as many when somebody did
/// want it: such a question may cost a slice of 4 ms, a hundredth of what a million polls take.
const ASK_AFTER_MIN: u32 = 16;
const ASK_AFTER_MAX: u32 = 1 << 20;

/// A way to offer the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuOffer {
    /// A yield, after many empty polls in a row.
    Yield,
    /// A yield between packets, to learn whether somebody wants the processor.
    Question,
    /// A sleep until a packet comes, since somebody does.
    Nap,
    /// A short sleep, for something else may come that does not end it.
    Blink,
}

/// Experience with others who want the processor.
pub(crate) struct YieldPolicy {
    /// Empty polls in a row, and after how many the processor is offered.
    empty: u32,
    after: u32,
    /// Empty polls since the last offer, and after how many it is asked.
    unasked: u32,
    ask_after: u32,
    /// Offers that will still be naps, in parts of one.
    naps: u32,
    /// Whoever took the processor last computed.
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

    /// Nobody took the processor when it was offered lately.
    pub(crate) fn is_alone(&self) -> bool {
        self.after == AFTER_MAX
    }

    /// Somebody took the processor when it was offered last.
    pub(crate) fn was_taken(&self) -> bool {
        self.naps > 0
    }

    /// The offer that fits one who awaits no packet. Others that wait as well give the processor
    /// back soon; from one that computes a sleeper gets it back sooner than one that yielded.
    pub(crate) fn of_no_packets(&self, offer: CpuOffer) -> CpuOffer {
        match (offer, self.computes) {
            (CpuOffer::Nap, true) => CpuOffer::Blink,
            (CpuOffer::Nap, false) => CpuOffer::Yield,
            (offer, _) => offer,
        }
    }

    /// Counts a poll.
    pub(crate) fn count(&mut self, taken: usize) {
        if taken == 0 {
            self.empty += 1;
            self.unasked = self.unasked.saturating_add(1);
        } else {
            self.empty = 0;
        }
    }

    /// The last empty poll and the next one are one.
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

    /// The offer was made, and the processor came back after so many ns.
    pub(crate) fn made(&mut self, offer: CpuOffer, took_ns: u64) {
        (self.empty, self.unasked) = (0, 0);
        let slept = match offer {
            CpuOffer::Nap => NAP,
            CpuOffer::Blink => BLINK,
            CpuOffer::Yield | CpuOffer::Question => 0,
        };
        if slept > 0 {
            // Two threads may both have napped, or one while another's yield ended the naps.
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

    /// Polls as in a ping-pong, three empty ones before each of so many packets, where offers come
    /// back after `took_ns`; how many were made.
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
    fn a_ping_pong_learns_that_nobody_wants_the_processor() {
        let mut offers = YieldPolicy::new();
        ping_pong(&mut offers, 50, 300);
        assert!(offers.is_alone());
        offers.made(CpuOffer::Yield, 4_000_000);
        assert!(!offers.is_alone());
        ping_pong(&mut offers, 50, 300);
        assert!(offers.is_alone());
    }

    #[test]
    fn it_asks_ever_less_where_somebody_does() {
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
    fn alone_only_a_long_wait_offers_the_processor() {
        let mut offers = YieldPolicy::new();
        ping_pong(&mut offers, 50, 300);
        assert_eq!(ping_pong(&mut offers, 10_000, 300), 0);
        (0..AFTER_MAX).for_each(|_| offers.count(0));
        assert_eq!(offers.due(), Some(CpuOffer::Yield));
    }

    #[test]
    fn a_nap_may_end_after_a_yield_of_another_thread() {
        let mut offers = YieldPolicy::new();
        offers.made(CpuOffer::Yield, 4_000_000);
        offers.made(CpuOffer::Question, 300);
        offers.made(CpuOffer::Nap, 1_000_000);
        (0..AFTER_MAX).for_each(|_| offers.count(0));
        assert_eq!(offers.due(), Some(CpuOffer::Yield));
    }

    #[test]
    fn after_a_yield_that_was_taken_come_naps() {
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
    fn who_awaits_no_packet_sleeps_only_beside_others_that_compute_and_never_long() {
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
