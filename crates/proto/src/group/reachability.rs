//! Multicast reception of a member, and round-trip times.

/// A member reports that it receives no multicast after this many unicast chunks without multicast
/// in between, and after [`UNREACHABLE_NS`] since the first of them: long enough to ignore a
/// momentary fault, short enough to report within 100 ms.
const UNREACHABLE_CHUNKS: u32 = 8;
/// See [`UNREACHABLE_CHUNKS`].
const UNREACHABLE_NS: u64 = 50_000_000;

/// A member that has requested a chunk in vain for this long also reports that it receives no
/// multicast: members leave a group without progress within a second.
pub(super) const STALL_NS: u64 = 500_000_000;

/// Number of questions to a member that reports no multicast, each after a probe on every rail,
/// before all members leave the group. One question is not enough: the missed chunks may all have
/// left by one rail of several, and a few probes may get lost.
pub(super) const ROUNDS: u8 = 3;
/// Pause between two questions to such a member, in nanoseconds.
pub(super) const ROUND_NS: u64 = 5_000_000;
/// Delay of the answers, so that probes sent before the question are read first.
pub(super) const ANSWER_NS: u64 = 2_000_000;

/// A collector's doubts about a member that reports that it receives no multicast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// Questions answered by "no multicast".
    answers: u8,
    /// Time of the unanswered question.
    asked_at: Option<u64>,
}

impl Doubt {
    /// Records an answer that no multicast arrives.
    pub fn says_so(&mut self, now: u64) {
        if self.asked_at.is_some_and(|at| now >= at + ANSWER_NS) {
            self.answers = self.answers.saturating_add(1);
            self.asked_at = None;
        }
    }

    /// Records a question, sent after probes.
    pub fn ask(&mut self, now: u64) {
        self.asked_at.get_or_insert(now);
    }

    /// Returns whether enough questions were asked.
    pub fn is_over(&self) -> bool {
        self.answers >= ROUNDS
    }
}

/// Unicast chunks, of all roots or of one, that arrived since the last multicast chunk of at least
/// their length.
#[derive(Debug, Default)]
pub(super) struct Alone {
    count: u32,
    /// Time at which the first chunk of the count arrived.
    since: u64,
    /// Bytes of the longest.
    longest: u32,
    /// The root was told that no multicast arrives.
    reported: bool,
    /// A chunk was requested in vain for [`STALL_NS`].
    stalled: bool,
}

impl Alone {
    /// Records a multicast chunk of this many bytes, or a probe (`None`), which is as long as any
    /// packet. Returns whether it shows that the network carries multicast: a chunk shorter than
    /// the unicast chunks shows nothing about their length.
    pub fn reaches(&mut self, chunk: Option<u32>) -> bool {
        let shows = chunk.is_none_or(|len| len >= self.longest && !self.stalled);
        if shows {
            *self = Alone::default();
        }
        shows
    }

    /// Records a new chunk of `len` bytes that arrived by unicast.
    pub fn came(&mut self, now: u64, len: u32) {
        if self.count == 0 {
            self.since = now;
        }
        self.longest = self.longest.max(len);
        self.count = self.count.saturating_add(1);
    }

    /// Returns whether no multicast reaches this member.
    pub fn is_unreachable(&self, now: u64) -> bool {
        self.stalled || self.count >= UNREACHABLE_CHUNKS && now >= self.since + UNREACHABLE_NS
    }

    /// Records that requested chunks do not arrive, for whatever reason. (If the root was
    /// descheduled for that time, its later probes clear the record.)
    pub fn stalls(&mut self) {
        self.stalled = true;
    }

    /// Returns whether no multicast reaches this member, once.
    pub fn turns_unreachable(&mut self, now: u64) -> bool {
        let news = self.is_unreachable(now) && !self.reported;
        self.reported |= news;
        news
    }

    /// Returns whether the lack of multicast was reported.
    pub fn was_reported(&self) -> bool {
        self.reported
    }
}

/// The multicast that a member receives.
#[derive(Debug, Default)]
pub(super) struct Reachability {
    /// Rails on which a multicast was heard, as bits.
    networks: u8,
    /// The unicast chunks of all roots together.
    pub(super) alone: Alone,
    /// Number of answers "no multicast", and the time of the last one.
    answers: (u8, u64),
}

impl Reachability {
    /// A multicast came.
    pub fn hear(&mut self, network: u8) {
        self.networks |= 1 << (network & 7);
    }

    /// Records a chunk of this many bytes that arrived by multicast, or a probe.
    pub fn reaches(&mut self, chunk: Option<u32>) {
        if self.alone.reaches(chunk) {
            self.answers = (0, 0);
        }
    }

    /// Handles a collector's question. Counts the answer if this member reports that no multicast
    /// arrives.
    pub fn asked(&mut self, now: u64) {
        let (answers, last) = self.answers;
        if self.alone.was_reported() && now >= last + ANSWER_NS {
            self.answers = (answers.saturating_add(1), now);
        }
    }

    /// Returns whether multicast certainly does not reach this member: enough questions were
    /// answered so.
    pub fn is_surely_unreachable(&self, now: u64) -> bool {
        self.alone.is_unreachable(now) && self.answers.0 > ROUNDS
    }

    /// Bit mask of rails that delivered multicast.
    pub fn networks(&self) -> u8 {
        self.networks
    }
}

/// Longest plausible round trip; longer samples waited for a processor.
const TRIP_MAX_NS: u64 = 10_000_000;
/// Recent samples among which the minimum is taken: seldom do all members of a group sleep.
const TRIPS: usize = 16;
/// A sample counts as at most this multiple of the recent minimum. Longer samples had waited for a
/// busy member, and timers derived from them would wait again.
const TRIP_SPREAD: u64 = 4;

/// Measured round-trip time of a small packet to another member.
#[derive(Debug)]
pub(super) struct Trip {
    least_ns: u64,
    ns: u64,
    recent: [u64; TRIPS],
    turn: usize,
}

impl Trip {
    /// `ns`: the estimate until the first sample; half of it is the lower bound of estimates.
    pub fn new(ns: u64) -> Trip {
        let ns = ns.clamp(2, TRIP_MAX_NS);
        Trip {
            least_ns: ns / 2,
            ns,
            recent: [ns; TRIPS],
            turn: 0,
        }
    }

    /// The mean, in ns.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// Adds a sample.
    pub fn sample(&mut self, ns: u64) {
        let ns = ns.clamp(self.least_ns, TRIP_MAX_NS);
        self.recent[self.turn] = ns;
        self.turn = (self.turn + 1) % TRIPS;
        let quickest = self.recent.iter().fold(ns, |least, &one| least.min(one));
        self.ns = (7 * self.ns + ns.min(TRIP_SPREAD * quickest)) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_multicast_takes_chunks_and_time_and_ends_with_one_packet() {
        let mut reachability = Reachability::default();
        (0..100).for_each(|n| reachability.alone.came(n, 900));
        assert!(
            !reachability.alone.is_unreachable(UNREACHABLE_NS - 1)
                && reachability.alone.is_unreachable(UNREACHABLE_NS)
        );
        assert!(
            reachability.alone.turns_unreachable(UNREACHABLE_NS)
                && !reachability.alone.turns_unreachable(UNREACHABLE_NS)
        );
        (0..9).for_each(|_| reachability.asked(UNREACHABLE_NS + ANSWER_NS));
        assert!(
            !reachability.is_surely_unreachable(2 * UNREACHABLE_NS),
            "asked once"
        );
        (2..9).for_each(|n| reachability.asked(UNREACHABLE_NS + n * ANSWER_NS));
        assert!(reachability.is_surely_unreachable(2 * UNREACHABLE_NS));
        reachability.hear(3);
        reachability.reaches(Some(899));
        assert!(
            reachability.alone.is_unreachable(u64::MAX / 2),
            "what came was shorter"
        );
        reachability.reaches(Some(900));
        assert!(!reachability.alone.is_unreachable(u64::MAX / 2) && reachability.networks() == 8);
        reachability.alone.came(7, 900);
        reachability.reaches(None);
        reachability.alone.came(7, 10);
        assert!(!reachability.alone.is_unreachable(u64::MAX / 2));
    }

    #[test]
    fn what_is_asked_for_in_vain_is_no_multicast_until_a_probe_comes() {
        let mut alone = Alone::default();
        alone.stalls();
        alone.reaches(Some(u32::MAX));
        assert!(alone.turns_unreachable(1) && alone.was_reported());
        alone.reaches(None);
        assert!(!alone.is_unreachable(1));
    }

    #[test]
    fn a_member_without_multicast_is_asked_again_after_probes() {
        let mut doubt = Doubt::default();
        (0..9).for_each(|n| doubt.says_so(n * ANSWER_NS));
        assert!(!doubt.is_over(), "nobody asked");
        for n in 0..ROUNDS as u64 {
            assert!(!doubt.is_over());
            doubt.ask(n * ROUND_NS);
            doubt.says_so(n * ROUND_NS + ANSWER_NS - 1); // sent before the question
            doubt.says_so(n * ROUND_NS + ANSWER_NS);
        }
        assert!(doubt.is_over());
    }

    #[test]
    fn round_trips_are_smoothed_within_bounds() {
        let mut trip = Trip::new(50_000);
        (0..100).for_each(|_| trip.sample(1_000_000));
        assert!(trip.ns() > 900_000);
        (0..100).for_each(|_| trip.sample(0));
        assert!((25_000..26_000).contains(&trip.ns()), "{}", trip.ns());
        (0..100).for_each(|_| trip.sample(u64::MAX));
        assert!(trip.ns() <= TRIP_MAX_NS);
        assert_eq!(Trip::new(0).ns(), 2);
    }

    /// Regression: with receivers that sleep up to 10 ms before each broadcast, TAILs waited for
    /// twice the time of the sleepers' answers.
    #[test]
    fn sleeping_members_do_not_inflate_the_round_trip() {
        let mut trip = Trip::new(50_000);
        for n in 0..1_000 {
            trip.sample(if n % 8 == 0 { 100_000 } else { 9_000_000 });
        }
        assert!(trip.ns() <= 400_000, "{}", trip.ns());
    }
}
