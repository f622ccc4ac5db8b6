//! Round-trip estimator of a path (RFC 9002, section 5): the smoothed round trip, its variation and
//! minimum, and the least recent round trip, which is the latency for short messages.

use crate::state::latency::Latency;

/// Length of the window of the minimum: the longest time for which the minimum of a former, shorter
/// route stays.
const MIN_WINDOW_NS: u64 = 10_000_000_000;
/// Above this multiple of the minimum, a round trip is due to a queue or to a descheduled peer.
const MIN_MULTIPLE: u64 = 16;

/// The round trips of a path.
#[derive(Debug)]
pub struct RoundTrip {
    srtt_ns: u64,
    rttvar_ns: u64,
    min_ns: u64,
    min_at_ns: u64,
    latency: Latency,
}

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip {
            srtt_ns: 0,
            rttvar_ns: 0,
            min_ns: u64::MAX,
            min_at_ns: 0,
            latency: Latency::default(),
        }
    }
}

impl RoundTrip {
    /// Adds a sample.
    pub(crate) fn on_sample(&mut self, rtt_ns: u64, now: u64) {
        let rtt = rtt_ns.max(1);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
        } else {
            let err = self.srtt_ns.abs_diff(rtt);
            self.rttvar_ns = (3 * self.rttvar_ns + err) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt) / 8;
        }
        if rtt < self.min_ns || now.saturating_sub(self.min_at_ns) > MIN_WINDOW_NS {
            self.min_ns = rtt;
            self.min_at_ns = now;
        }
        self.latency.take(rtt, now);
    }

    /// True if there was a sample.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.srtt_ns != 0
    }

    /// The smoothed round trip; 0 before the first sample.
    #[inline]
    pub(crate) fn srtt_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// The least round trip of the last ten seconds; `None` before the first sample.
    #[inline]
    pub(crate) fn min_ns(&self) -> Option<u64> {
        (self.min_ns != u64::MAX).then_some(self.min_ns)
    }

    /// The smoothed round trip with four variations: nearly all round trips are shorter.
    #[inline]
    pub(crate) fn with_variation_ns(&self) -> u64 {
        self.srtt_ns + 4 * self.rttvar_ns
    }

    /// Four smoothed round trips: the first retransmission interval.
    #[inline]
    pub(crate) fn four_ns(&self) -> u64 {
        4 * self.srtt_ns
    }

    /// Four smoothed round trips, at most [`MIN_MULTIPLE`] minima or, if that is longer,
    /// `queue_ns`, the delay of a known queue.
    #[inline]
    pub(crate) fn four_unqueued_ns(&self, queue_ns: u64) -> u64 {
        let most = self.min_ns.saturating_mul(MIN_MULTIPLE).max(queue_ns);
        self.four_ns().min(most)
    }

    /// True if round trips vary little: long ones are then due to a queue, not to a descheduled
    /// peer.
    #[inline]
    pub(crate) fn is_even(&self) -> bool {
        2 * self.rttvar_ns <= self.srtt_ns
    }

    /// Half the smoothed round trip or half the minimum, whichever is less. (The smoothed round
    /// trip includes queueing.)
    #[inline]
    pub(crate) fn half_ns(&self) -> u64 {
        self.srtt_ns.min(self.min_ns) / 2
    }

    /// Time after which a packet is lost if later packets arrived (RFC 9002, section 6.1.2): a
    /// round trip and a quarter, and 20 us for the peer's batch.
    #[inline]
    pub(crate) fn loss_delay_ns(&self) -> u64 {
        self.srtt_ns + self.srtt_ns / 4 + 20_000
    }

    /// Time after which an overtaken size probe is lost: the probe timer of RFC 8899, with room for
    /// reordering. Longer than for data (a round trip and a quarter): a wrong decision costs a
    /// packet there, but a packet size here.
    pub(crate) fn size_probe_ns(&self) -> u64 {
        4 * (self.srtt_ns + self.rttvar_ns.min(self.srtt_ns))
    }

    /// Half the least recent round trip; a very high value before the first sample.
    #[inline]
    pub(crate) fn one_way_ns(&self) -> u64 {
        self.latency.one_way_ns()
    }

    /// True if the other paths are due for a latency probe; the interval then starts anew.
    #[inline]
    pub(crate) fn is_to_compare(&mut self, now: u64) -> bool {
        self.latency.is_to_compare(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_is_taken_as_it_is_and_later_ones_by_an_eighth() {
        let mut rtt = RoundTrip::default();
        assert!(!rtt.is_known());
        assert_eq!((rtt.srtt_ns(), rtt.min_ns()), (0, None));
        rtt.on_sample(80_000, 1);
        assert_eq!((rtt.srtt_ns(), rtt.rttvar_ns), (80_000, 40_000));
        rtt.on_sample(160_000, 2);
        assert_eq!((rtt.srtt_ns(), rtt.rttvar_ns), (90_000, 50_000));
        assert_eq!(rtt.with_variation_ns(), 290_000);
        assert_eq!(rtt.min_ns(), Some(80_000));
    }

    #[test]
    fn a_round_trip_of_nothing_counts_as_known() {
        let mut rtt = RoundTrip::default();
        rtt.on_sample(0, 1);
        assert!(rtt.is_known());
    }

    #[test]
    fn the_minimum_is_forgotten_after_its_window() {
        let mut rtt = RoundTrip::default();
        rtt.on_sample(10_000, 1);
        rtt.on_sample(50_000, MIN_WINDOW_NS);
        assert_eq!(rtt.min_ns(), Some(10_000));
        rtt.on_sample(50_000, MIN_WINDOW_NS + 2);
        assert_eq!(rtt.min_ns(), Some(50_000));
    }

    #[test]
    fn what_a_queue_adds_is_bounded_by_the_minimum() {
        let mut rtt = RoundTrip::default();
        rtt.on_sample(10_000, 1);
        for now in 2..100 {
            rtt.on_sample(1_000_000, now);
        }
        assert!(rtt.four_ns() > 3_900_000 && rtt.is_even());
        assert_eq!(rtt.four_unqueued_ns(0), 160_000);
        assert_eq!(rtt.four_unqueued_ns(500_000), 500_000);
        assert_eq!(rtt.half_ns(), 5_000);
        assert!(rtt.loss_delay_ns() > 1_200_000);
    }
}
