//! Poll gaps of the application, which determine the progress thread's tick. Frequent ticks slow a
//! polling application down, notably in virtual machines with virtual timer interrupts. Rare ticks
//! leave the peers of an application on an oversubscribed core without answers: MPICH yields after
//! each poll, so that beside another busy process a rank polls once per scheduler slice of 3-4 ms.
//! So the thread ticks faster if the application was often descheduled recently.

/// Shorter gaps are normal time between polls.
pub(crate) const DESCHEDULED_MIN_NS: u64 = 1_000_000;
/// Time in which the sum of gaps halves, and length of a period with faster ticks.
const SPAN_NS: u64 = 100_000_000;
/// Sum of gaps per span from which the thread ticks faster.
const MUCH_NS: u64 = SPAN_NS / 4;

/// The application's poll gaps.
#[derive(Debug, Default)]
pub(crate) struct PollGaps {
    since_ns: u64,
    sum_ns: u64,
}

impl PollGaps {
    /// Notes a poll after a gap; returns the end of the period with faster ticks, if there is one.
    pub(crate) fn note(&mut self, now: u64, gap_ns: u64) -> Option<u64> {
        let spans = now.saturating_sub(self.since_ns) / SPAN_NS;
        if spans > 0 {
            self.sum_ns = self.sum_ns.checked_shr(spans as u32).unwrap_or(0);
            self.since_ns = now;
        }
        // A long gap is a computation, for which the thread takes over by itself.
        self.sum_ns += gap_ns.min(MUCH_NS / 4);
        (self.sum_ns >= MUCH_NS).then_some(now + SPAN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_poll_gaps_shorten_the_tick_and_rare_ones_do_not() {
        let (mut shares, mut seldom, mut short_tick) =
            (PollGaps::default(), PollGaps::default(), 0);
        for i in 0..100u64 {
            // 4 ms in each 8 ms; 2 ms in each 40 ms.
            short_tick += shares.note(i * 8_000_000, 4_000_000).is_some() as u32;
            assert_eq!(seldom.note(i * 40_000_000, 2_000_000), None);
        }
        assert!(short_tick > 80);
    }

    #[test]
    fn one_long_gap_does_not_shorten_the_tick_and_old_gaps_are_forgotten() {
        let mut a = PollGaps::default();
        assert_eq!(a.note(5_000_000_000, 5_000_000_000), None);
        for i in 0..3u64 {
            a.note(5_001_000_000 + i * 7_000_000, 6_250_000);
        }
        assert!(a.note(5_030_000_000, 6_250_000).is_some());
        assert_eq!(a.note(60_000_000_000, 6_250_000), None);
    }
}
