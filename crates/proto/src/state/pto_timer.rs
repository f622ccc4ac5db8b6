//! Retransmission timer of a path (PTO): the start of its interval, how often it expired, and what
//! was repeated on other paths meanwhile. `recovery/interval.rs` computes the length of the
//! interval.

/// Jitter: repeated retransmissions leave early by up to one part in `JITTER_SHARE` of their
/// interval, in `JITTER_STEPS` steps.
const JITTER_SHARE: u64 = 4;
const JITTER_STEPS: u64 = 64;
/// Doublings of the interval, at most.
const DOUBLINGS_MAX: u16 = 12;
/// Most packets repeated at once on other paths: two to this power.
const HEDGES_MAX: u8 = 6;
/// Value of `hedges` after all packets in flight were repeated; they are looked at again when the
/// path itself is probed.
const HEDGED: u8 = u8::MAX;
/// Most times that requests and grants are repeated: their arrival on another path is not tracked.
const CONTROL_MAX: u8 = 2;
/// Expired timers after which delivery on the path is doubtful.
const DOUBTFUL: u16 = 2;

/// The retransmission timer of a path.
#[derive(Debug)]
pub struct PtoTimer {
    /// Start of the running interval: oldest send or last ack progress.
    since_ns: u64,
    /// Start of the interval in which another path was probed to learn whether the peer runs; on a
    /// reliable path, the time of that probe.
    asked_ns: u64,
    /// A retransmitted packet; not yet known whether the retransmission was spurious.
    resent: Option<u64>,
    backoff: u16,
    /// How often frames in flight were repeated on other paths since the last ack.
    hedges: u8,
}

impl Default for PtoTimer {
    fn default() -> PtoTimer {
        PtoTimer {
            since_ns: 0,
            asked_ns: u64::MAX,
            resent: None,
            backoff: 0,
            hedges: 0,
        }
    }
}

impl PtoTimer {
    /// Start of the running interval.
    #[inline]
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Starts an interval.
    #[inline]
    pub(crate) fn restart(&mut self, now: u64) {
        self.since_ns = now;
    }

    /// Packets in flight left at `sent_ns` or later: the interval starts no sooner.
    #[inline]
    pub(crate) fn begin_at(&mut self, sent_ns: u64) {
        self.since_ns = self.since_ns.max(sent_ns);
    }

    /// Handles an ack with news.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: u64) {
        self.reset();
        self.since_ns = now;
    }

    /// Forgets the expired intervals: the path is down.
    #[inline]
    pub(crate) fn reset(&mut self) {
        (self.backoff, self.hedges) = (0, 0);
    }

    /// Resets the number of expiries because the path is up, but not what was repeated.
    pub(crate) fn on_up(&mut self) {
        self.backoff = 0;
    }

    /// Counts another expiry. At its maximum the count continues from the middle, since every
    /// fourth expiry has extra actions.
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.checked_add(1).unwrap_or(u16::MAX / 2);
    }

    /// The timer of a reliable path expired, and the path itself is probed.
    pub(crate) fn on_stall(&mut self, now: u64) {
        self.since_ns = now;
        self.hedges = 0;
        self.back_off();
    }

    /// How often the timer expired since the last ack.
    #[inline]
    pub(crate) fn backoff(&self) -> u16 {
        self.backoff
    }

    /// True if packets in flight were retransmitted twice.
    #[inline]
    pub(crate) fn is_doubtful(&self) -> bool {
        self.backoff >= DOUBTFUL
    }

    /// The interval after the expiries so far: `first`, doubled for each, up to `most`, less a
    /// jitter. With a fixed period every packet could meet the same full queue, if a periodic
    /// stream of another sender fills it.
    pub(crate) fn interval_ns(&self, first_ns: u64, most_ns: u64) -> u64 {
        let interval = (first_ns << self.backoff.min(DOUBLINGS_MAX)).min(most_ns);
        interval - self.jitter() * (interval / JITTER_SHARE) / JITTER_STEPS
    }

    /// Pseudo-random number below `JITTER_STEPS`, from the start of this interval; 0 without
    /// backoff.
    fn jitter(&self) -> u64 {
        if self.backoff == 0 {
            return 0;
        }
        // Fibonacci hashing: the upper bits of the product depend on all bits of the time.
        self.since_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - JITTER_STEPS.ilog2())
    }

    /// Notes a probe on another path. `reliable`: the rail retransmits by itself.
    pub(crate) fn ask_elsewhere(&mut self, now: u64, reliable: bool) {
        self.asked_ns = match reliable {
            true => now,
            false => self.since_ns,
        };
    }

    /// True if another path was probed in this interval of a lossy path.
    #[inline]
    pub(crate) fn has_asked(&self) -> bool {
        self.asked_ns == self.since_ns
    }

    /// When another path was probed on behalf of this reliable path, in this interval.
    #[inline]
    pub(crate) fn asked_elsewhere_ns(&self) -> Option<u64> {
        let asked = self.asked_ns != u64::MAX && self.asked_ns > self.since_ns;
        asked.then_some(self.asked_ns)
    }

    /// Notes a retransmitted packet, to learn whether it was spurious; `None`: that cannot be
    /// known.
    pub(crate) fn set_resent(&mut self, number: Option<u64>) {
        self.resent = number;
    }

    /// A retransmitted packet; not yet known whether the retransmission was spurious.
    #[inline]
    pub(crate) fn resent(&self) -> Option<u64> {
        self.resent
    }

    /// True if no frames in flight were repeated on other paths since the last ack.
    pub(crate) fn is_first_hedge(&self) -> bool {
        self.hedges == 0
    }

    /// True if all packets in flight were repeated on other paths.
    #[inline]
    pub(crate) fn is_hedged(&self) -> bool {
        self.hedges == HEDGED
    }

    /// Number of packets to repeat on other paths next: twice as many as last time.
    pub(crate) fn hedge_packets(&self) -> usize {
        1 << self.hedges.min(HEDGES_MAX)
    }

    /// True if requests and grants must be repeated too.
    pub(crate) fn hedges_control(&self) -> bool {
        self.hedges < CONTROL_MAX
    }

    /// Notes that frames in flight were repeated, or that none are left to repeat.
    pub(crate) fn on_hedge(&mut self, none_left: bool) {
        self.hedges = match none_left {
            true => HEDGED,
            false => (self.hedges + 1).min(HEDGES_MAX),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_interval_doubles_up_to_its_bound_and_varies() {
        let mut pto = PtoTimer::default();
        pto.restart(12_345_678);
        assert_eq!(pto.interval_ns(MS, 10 * MS), MS);
        for expected in [2, 4, 8, 10, 10] {
            pto.back_off();
            let interval = pto.interval_ns(MS, 10 * MS);
            assert!(interval <= expected * MS && interval > expected * MS * 3 / 4);
        }
        let vary = (0..100).map(|now| {
            pto.restart(now * MS);
            pto.interval_ns(MS, 10 * MS)
        });
        let mut intervals: Vec<_> = vary.collect();
        intervals.sort_unstable();
        intervals.dedup();
        assert!(intervals.len() > 30);
    }

    #[test]
    fn an_ack_begins_anew() {
        let mut pto = PtoTimer::default();
        pto.back_off();
        assert!(!pto.is_doubtful());
        pto.back_off();
        pto.on_hedge(false);
        assert!(pto.is_doubtful() && !pto.is_first_hedge());
        pto.on_ack(7);
        assert!(!pto.is_doubtful() && pto.is_first_hedge());
        assert_eq!((pto.since_ns(), pto.backoff()), (7, 0));
        pto.begin_at(5);
        assert_eq!(pto.since_ns(), 7);
        pto.begin_at(9);
        assert_eq!(pto.since_ns(), 9);
    }

    #[test]
    fn the_count_of_expiries_never_returns_to_zero() {
        let mut pto = PtoTimer::default();
        (0..=u16::MAX).for_each(|_| pto.back_off());
        assert_eq!(pto.backoff(), u16::MAX / 2);
    }

    #[test]
    fn a_question_elsewhere_belongs_to_its_interval() {
        let mut pto = PtoTimer::default();
        assert!(pto.asked_elsewhere_ns().is_none());
        pto.restart(10);
        pto.ask_elsewhere(15, true);
        assert_eq!(
            (pto.asked_elsewhere_ns(), pto.has_asked()),
            (Some(15), false)
        );
        pto.restart(20);
        assert_eq!(pto.asked_elsewhere_ns(), None);
        pto.ask_elsewhere(25, false);
        assert_eq!((pto.asked_elsewhere_ns(), pto.has_asked()), (None, true));
    }

    #[test]
    fn more_packets_are_repeated_each_time_until_none_is_left() {
        let mut pto = PtoTimer::default();
        let mut packets = Vec::new();
        for _ in 0..9 {
            packets.push(pto.hedge_packets());
            pto.on_hedge(false);
        }
        assert_eq!(packets, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!pto.hedges_control() && !pto.is_hedged());
        pto.on_hedge(true);
        assert!(pto.is_hedged());
        pto.on_stall(5);
        assert!(!pto.is_hedged() && pto.hedges_control());
        assert_eq!((pto.backoff(), pto.since_ns()), (1, 5));
    }
}
