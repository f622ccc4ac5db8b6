//! Congestion window of a path, and the delivery rate that it follows: twice the rate times the
//! least round trip.
//!
//! Two rates are measured. The best recent rate sizes the window. The mean rate under load says how
//! long a queue takes to drain; it is weighted by time, so that a burst that a token bucket lets
//! pass counts little.

use crate::state::round_trip::RoundTrip;
use crate::state::sent_packets::{Delivered, Sent};

/// Time constant of a busy path's mean rate.
const BUSY_MEMORY_NS: u64 = 2_000_000;
/// With fewer bytes than this between a packet and its ack there is hardly a queue: the sample then
/// measures the peer's reaction.
const BUSY_BYTES_MIN: u64 = CWND_FLOOR / 2;
/// Longest queueing delay that is believed: a mean rate that implies more comes from a descheduled
/// peer.
const QUEUED_MAX_NS: u64 = 30_000_000;

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// Floor of the congestion window: two super-packets.
pub const CWND_FLOOR: u64 = 128_000;
const CWND_CAP: u64 = 64 << 20;
/// The window of a path that does not lose packets to overload: packets wait in the rail.
const UNBOUNDED: u64 = u64::MAX;
/// Least round trip assumed for the window: on a loopback-like path the delay comes from batching,
/// not from the wire. The second, far larger value applies if nothing was lost for a second.
const RTT_FLOOR_NS: u64 = 50_000;
const RTT_ROOM_NS: u64 = 500_000;
/// A rate sample with fewer bytes than this between a packet and its ack measures the demand
/// (probes, small messages), not the path. After a path was down, its first sample must be larger;
/// otherwise the path would get no load again.
pub(crate) const RATE_BYTES_MIN: u64 = 16_000;
/// How long a loss makes the window strict.
const STRICT_NS: u64 = 1_000_000_000;
/// Half of the window of the best rate: so many smoothed round trips, but at least the second
/// value.
const RATE_HALF_ROUND_TRIPS: u64 = 20;
const RATE_HALF_RTT_MIN_NS: u64 = 500_000;
/// Least time of a rate sample: acks come in clumps.
const SAMPLE_MIN_NS: u64 = 1_000;

/// The congestion window and the delivery rate of a path.
#[derive(Debug)]
pub struct Congestion {
    delivered: Delivered,
    /// Best delivery rate (bytes/s) of this half window and of the half window before.
    rate: [u64; 2],
    rate_since_ns: u64,
    /// Recent mean delivery rate under load, in KiB/s; 0: unknown.
    busy_kib_per_s: u32,
    /// The path went down after its rate was measured.
    fell: bool,
    cwnd: u64,
    /// End of the strict window after a loss.
    strict_until_ns: u64,
}

impl Congestion {
    /// `bounded`: the path loses packets when it is overloaded, and needs a window.
    pub(crate) fn new(bounded: bool) -> Congestion {
        Congestion {
            delivered: Delivered::default(),
            rate: [0; 2],
            rate_since_ns: 0,
            busy_kib_per_s: 0,
            fell: false,
            cwnd: match bounded {
                true => CWND_FLOOR,
                false => UNBOUNDED,
            },
            strict_until_ns: 0,
        }
    }

    /// The window: bytes that may be in flight.
    #[inline]
    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// True if packets may leave beside `in_flight` bytes.
    #[inline]
    pub(crate) fn has_room(&self, in_flight: u64) -> bool {
        in_flight < self.cwnd
    }

    /// Bytes that may leave in addition to `in_flight` bytes.
    #[inline]
    pub(crate) fn room(&self, in_flight: u64) -> u64 {
        self.cwnd.saturating_sub(in_flight)
    }

    /// True if losses bound the window.
    pub(crate) fn is_bounded(&self) -> bool {
        self.cwnd != UNBOUNDED
    }

    /// The counters to store with a packet, for the rate sample of its ack.
    #[inline]
    pub(crate) fn delivered(&self) -> Delivered {
        self.delivered
    }

    /// A packet leaves while nothing else is in flight: rate samples begin now.
    #[inline]
    pub(crate) fn on_first_sent(&mut self, now: u64) {
        self.delivered.at_ns = now;
    }

    /// Counts acknowledged bytes.
    #[inline]
    pub(crate) fn on_delivered(&mut self, bytes: u64) {
        self.delivered.bytes += bytes;
    }

    /// Notes the end of an ack with news.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: u64) {
        self.delivered.at_ns = now;
    }

    /// Adds a delivery-rate sample, from the ack of packet `sent`, and sets the window. The sample
    /// is the number of bytes acknowledged since the packet left, over the time since the last ack
    /// before it left: acks come in clumps, and an ack already due when the packet left must not
    /// count. Returns false if the path was down and the sample is too small.
    pub(crate) fn on_sample(
        &mut self,
        sent: &Sent,
        in_flight: u64,
        rtt: &RoundTrip,
        now: u64,
    ) -> bool {
        let bytes = self.delivered.bytes - sent.delivered.bytes;
        self.on_rate(
            (bytes, now.saturating_sub(sent.delivered.at_ns)),
            in_flight,
            rtt,
            now,
        )
    }

    fn on_rate(
        &mut self,
        (bytes, elapsed_ns): (u64, u64),
        in_flight: u64,
        rtt: &RoundTrip,
        now: u64,
    ) -> bool {
        if self.fell && bytes < RATE_BYTES_MIN {
            return false;
        }
        self.fell = false;
        let rate = product_over(bytes, NS_PER_S, elapsed_ns.max(SAMPLE_MIN_NS));
        let half_ns = RATE_HALF_ROUND_TRIPS * rtt.srtt_ns().max(RATE_HALF_RTT_MIN_NS);
        if now.saturating_sub(self.rate_since_ns) > half_ns {
            self.rate = [rate, self.rate[0]];
            self.rate_since_ns = now;
        }
        self.rate[0] = self.rate[0].max(rate);
        if in_flight > 0 && bytes >= BUSY_BYTES_MIN {
            self.on_busy(bytes, elapsed_ns);
        }
        if let Some(min_rtt_ns) = rtt.min_ns().filter(|_| self.is_bounded()) {
            self.set_window(min_rtt_ns, now);
        }
        true
    }

    fn set_window(&mut self, min_rtt_ns: u64, now: u64) {
        // Without losses the bytes in flight may cover a descheduled peer's time slice (grants
        // bound them too). After a loss the window follows the path's capacity.
        let floor = if now < self.strict_until_ns {
            RTT_FLOOR_NS
        } else {
            RTT_ROOM_NS
        };
        let rtt = min_rtt_ns.max(floor);
        // (The best rate is often twice the mean; a higher one was a burst.)
        let rate = match self.busy_bytes_per_s() {
            0 => self.rate_bytes_per_s(),
            busy => self.rate_bytes_per_s().min(2 * busy),
        };
        let window = product_over(2 * rate, rtt, NS_PER_S);
        self.cwnd = window.clamp(CWND_FLOOR, CWND_CAP);
    }

    /// Adds a sample of the path's rate under load: `bytes` were delivered in this time, and more
    /// are in flight. The mean is weighted by time, so that a burst that a token bucket lets pass
    /// counts little.
    fn on_busy(&mut self, bytes: u64, elapsed_ns: u64) {
        let before = match self.busy_bytes_per_s() {
            0 => 0,
            rate => product_over(rate, BUSY_MEMORY_NS, NS_PER_S),
        };
        let memory_ns = if before == 0 { 0 } else { BUSY_MEMORY_NS };
        let mean = product_over(
            before + bytes,
            NS_PER_S,
            (memory_ns + elapsed_ns).max(SAMPLE_MIN_NS),
        );
        self.busy_kib_per_s = (mean >> 10).clamp(1, u32::MAX.into()) as u32;
    }

    /// A packet is lost: the window is strict for a while.
    pub(crate) fn on_loss(&mut self, now: u64) {
        self.strict_until_ns = now + STRICT_NS;
    }

    /// No loss was real.
    pub(crate) fn on_spurious(&mut self) {
        self.strict_until_ns = 0;
    }

    /// The path is down: its rate is unknown.
    pub(crate) fn on_down(&mut self) {
        self.rate = [0; 2];
        self.fell = true;
        if self.is_bounded() {
            self.cwnd = CWND_FLOOR;
        }
    }

    /// Best recent delivery rate in bytes/s; 0 without a sample.
    pub(crate) fn rate_bytes_per_s(&self) -> u64 {
        self.rate[0].max(self.rate[1])
    }

    /// The recent mean rate in bytes/s; 0 without a sample.
    pub(crate) fn busy_bytes_per_s(&self) -> u64 {
        u64::from(self.busy_kib_per_s) << 10
    }

    /// The rate that decides the path's share of data: the recent mean if it is below the best
    /// rate, which may be a burst that a token bucket let pass; 0 before the first sample.
    pub(crate) fn share_bytes_per_s(&self) -> u64 {
        match (self.rate_bytes_per_s(), self.busy_bytes_per_s()) {
            (best, 0) => best,
            (best, busy) => best.min(busy),
        }
    }

    /// Time to send `bytes` at the mean rate; 0 without a rate sample.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        match self.busy_bytes_per_s() {
            0 => 0,
            rate => product_over(bytes, NS_PER_S, rate).min(QUEUED_MAX_NS),
        }
    }

    /// Time to send `bytes` at the mean rate, or at `assumed_bytes_per_s` without a rate sample.
    pub(crate) fn takes_or_ns(&self, bytes: u64, assumed_bytes_per_s: u64) -> u64 {
        match self.busy_bytes_per_s() {
            0 => product_over(bytes, NS_PER_S, assumed_bytes_per_s),
            _ => self.takes_ns(bytes),
        }
    }

    /// Time to drain `in_flight` bytes at the mean rate; no packet is late before that. Few or
    /// short packets count as 0.
    pub(crate) fn drains_ns(&self, in_flight: u64) -> u64 {
        match in_flight {
            ..RATE_BYTES_MIN => 0,
            bytes => self.takes_ns(bytes.min(CWND_FLOOR)),
        }
    }

    /// The result of `drains_ns`, at `assumed_bytes_per_s` if there is no rate sample.
    pub(crate) fn drains_or_ns(&self, in_flight: u64, assumed_bytes_per_s: u64) -> u64 {
        match in_flight {
            ..RATE_BYTES_MIN => 0,
            bytes => self.takes_or_ns(bytes.min(CWND_FLOOR), assumed_bytes_per_s),
        }
    }
}

/// `a * b / c`. The product nearly always fits 64 bits, where a division costs a third.
pub(crate) fn product_over(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (a as u128 * b as u128 / c as u128) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn round_trip(ns: u64) -> RoundTrip {
        let mut rtt = RoundTrip::default();
        rtt.on_sample(ns, 1);
        rtt
    }

    #[test]
    fn the_window_is_twice_the_rate_times_the_least_round_trip() {
        let mut congestion = Congestion::new(true);
        assert_eq!(congestion.cwnd(), CWND_FLOOR);
        // 1 GB/s at a round trip of 1 ms.
        assert!(congestion.on_rate((1_000_000, MS), 0, &round_trip(MS), 1));
        assert_eq!(congestion.cwnd(), 2_000_000);
        assert!(congestion.has_room(1_999_999) && !congestion.has_room(2_000_000));
        assert_eq!(congestion.room(1_500_000), 500_000);
    }

    #[test]
    fn a_loss_makes_the_window_strict_until_it_proves_spurious() {
        let rtt = round_trip(50_000);
        let mut congestion = Congestion::new(true);
        congestion.on_loss(1);
        congestion.on_rate((4_000_000, MS), 0, &rtt, 1);
        assert_eq!(congestion.cwnd(), 400_000);
        congestion.on_spurious();
        congestion.on_rate((4_000_000, MS), 0, &rtt, 1);
        assert_eq!(congestion.cwnd(), 4_000_000);
    }

    #[test]
    fn a_path_that_loses_nothing_has_no_bound() {
        let mut congestion = Congestion::new(false);
        congestion.on_rate((1_000, MS), 0, &round_trip(MS), 1);
        congestion.on_down();
        assert!(!congestion.is_bounded() && congestion.has_room(u64::MAX - 1));
    }

    #[test]
    fn after_an_outage_a_short_sample_does_not_count() {
        let rtt = round_trip(MS);
        let mut congestion = Congestion::new(true);
        congestion.on_rate((1_000_000, MS), 0, &rtt, 1);
        congestion.on_down();
        assert_eq!(
            (congestion.cwnd(), congestion.rate_bytes_per_s()),
            (CWND_FLOOR, 0)
        );
        assert!(!congestion.on_rate((RATE_BYTES_MIN - 1, MS), 0, &rtt, 2));
        assert_eq!(congestion.rate_bytes_per_s(), 0);
        assert!(congestion.on_rate((RATE_BYTES_MIN, MS), 0, &rtt, 2));
        assert_eq!(congestion.rate_bytes_per_s(), RATE_BYTES_MIN * 1_000);
    }

    #[test]
    fn a_burst_counts_little_in_the_mean_rate() {
        let rtt = round_trip(MS);
        let mut congestion = Congestion::new(true);
        // 100 MB/s for long, then 10 GB/s for 10 us.
        for now in 1..20 {
            congestion.on_rate((100_000, MS), 1, &rtt, now * MS);
        }
        congestion.on_rate((100_000, 10_000), 1, &rtt, 20 * MS);
        assert_eq!(congestion.rate_bytes_per_s(), 10_000_000_000);
        assert!(congestion.busy_bytes_per_s() < 160_000_000);
        assert_eq!(
            congestion.share_bytes_per_s(),
            congestion.busy_bytes_per_s()
        );
    }

    #[test]
    fn queueing_delay_follows_the_mean_rate() {
        let mut congestion = Congestion::new(true);
        assert_eq!(
            (congestion.takes_ns(100_000), congestion.drains_ns(100_000)),
            (0, 0)
        );
        assert_eq!(congestion.takes_or_ns(100_000, 10_000_000), 10 * MS);
        congestion.on_rate((102_400, MS), 1, &round_trip(MS), 1);
        assert_eq!(congestion.takes_ns(1_024_000), 10 * MS);
        assert_eq!(congestion.takes_ns(u64::MAX), QUEUED_MAX_NS);
        assert_eq!(congestion.drains_ns(RATE_BYTES_MIN - 1), 0);
        assert_eq!(
            congestion.drains_ns(u64::MAX),
            congestion.takes_ns(CWND_FLOOR)
        );
        assert_eq!(
            congestion.drains_or_ns(u64::MAX, 1),
            congestion.takes_ns(CWND_FLOOR)
        );
    }

    #[test]
    fn a_product_beyond_64_bits_is_divided_exactly() {
        assert_eq!(product_over(6, 7, 2), 21);
        assert_eq!(product_over(u64::MAX, 10, 20), u64::MAX / 2);
    }
}
