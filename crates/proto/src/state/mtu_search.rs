//! Packet size of a path: the state of path MTU discovery (RFC 8899). `mtu_probe.rs` says how a
//! black hole is told from random loss.
//!
//! Each method notes one fact (a probe or a packet was sent, acknowledged or lost). Where the fact
//! can call for a short reference probe, the method returns whether one must leave.

use marline_wire::BLOCK_BYTES;

/// UDP payload that every IPv6 path takes (1,280-byte minimum MTU less 48 bytes of headers); used
/// until a padded probe proves more.
pub const DATAGRAM_BASE: usize = 1_232;
/// UDP payload that every IPv4 path takes: the minimum of 576 bytes less headers. Our packets need
/// at least that.
pub const DATAGRAM_FLOOR: usize = 548;
/// Datagram sizes to try when the largest did not get through: jumbo frames, Ethernet, Ethernet in
/// the usual tunnels, IPv6's minimum, and two sizes between IPv6's minimum and IPv4's.
const PROBE_SIZES: [usize; 8] = [8_948, 4_052, 1_452, 1_412, 1_372, DATAGRAM_BASE, 1_152, 852];

/// Probes per size.
const TRIES: u8 = 3;
/// Probes to confirm that a size in use fails. (A path that randomly loses a third of all packets
/// loses all these probes, but none of their short reference packets, once in 400 times; and it is
/// probed only after suspicious losses.)
const TRIES_BLACK_HOLE: u8 = 4;
/// Losses in a row that shorter packets survived, before the path is probed.
const BLACK_HOLE_SIGNS: u8 = 2;
/// Least interval between two probes of a suspected black hole; random losses that look alike are
/// rarer.
const BLACK_HOLE_SIGN_EVERY_NS: u64 = 10_000_000;
/// Time until a larger size is probed after a path shrank: first a second, then doubled. Each
/// attempt costs at most three probes per size.
const RAISE_NS: u64 = 1_000_000_000;
const RAISE_CAP_NS: u64 = 64_000_000_000;

/// The search for the packet size of a path.
#[derive(Debug)]
pub struct MtuSearch {
    /// The largest datagram in use.
    datagram_max: usize,
    /// The size is known: nothing is probed.
    fixed: bool,
    /// The largest datagram that both rails accept.
    ceiling: usize,
    /// The size being probed; 0: no probe.
    asked: usize,
    tries: u8,
    /// A padded probe is to leave.
    wants_probe: bool,
    /// A short reference packet follows each probe; the probe counts as lost only if the reference
    /// packet arrived.
    with_short_probe: bool,
    /// Packet number of the probe in flight.
    probe: Option<u64>,
    /// Number of losses since a packet as long as the shortest lost one arrived; `doubted`: bytes
    /// of the shortest lost packet.
    doubts: u8,
    doubted: usize,
    doubted_ns: u64,
    /// Bytes of the newest acknowledged packet; for a write, of one of its datagrams.
    newest_acked_bytes: usize,
    /// When to probe for a larger size, and the interval after that.
    raise_at: u64,
    raise_every: u64,
    /// The size before the path shrank; 0 once reported.
    size_before: usize,
    /// Since when no packet long enough for data passes; `None`: such packets pass.
    no_data_since: Option<u64>,
}

/// Outcome of a lost probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeLost {
    /// A short reference probe is to leave.
    pub(crate) short_probe: bool,
    /// The path shrank: packets in flight do not pass.
    pub(crate) shrank: bool,
    /// No packet long enough for data passes, and that is new.
    pub(crate) too_small: bool,
}

impl MtuSearch {
    /// The search between the size that every path takes and `ceiling` bytes.
    pub(crate) fn new(ceiling: usize) -> MtuSearch {
        MtuSearch {
            datagram_max: DATAGRAM_BASE.min(ceiling),
            fixed: false,
            ceiling,
            asked: if ceiling > DATAGRAM_BASE { ceiling } else { 0 },
            tries: 0,
            wants_probe: false,
            with_short_probe: false,
            probe: None,
            doubts: 0,
            doubted: 0,
            doubted_ns: 0,
            newest_acked_bytes: 0,
            raise_at: u64::MAX,
            raise_every: RAISE_NS,
            size_before: 0,
            no_data_since: None,
        }
    }

    /// A path known to take packets of up to `ceiling` bytes: nothing is probed.
    pub(crate) fn fixed(ceiling: usize) -> MtuSearch {
        MtuSearch {
            datagram_max: ceiling,
            asked: 0,
            fixed: true,
            ..MtuSearch::new(ceiling)
        }
    }

    /// The largest datagram in use.
    #[inline]
    pub(crate) fn datagram_max(&self) -> usize {
        self.datagram_max
    }

    /// True if a padded probe is to leave.
    #[inline]
    pub(crate) fn wants_probe(&self) -> bool {
        self.wants_probe
    }

    /// Takes the request for a padded probe. Returns its size; 0 if no probe is due any more.
    pub(crate) fn take_probe(&mut self) -> usize {
        self.wants_probe = false;
        self.asked
    }

    /// Notes the packet number of the probe.
    pub(crate) fn on_probe_sent(&mut self, number: u64) {
        self.probe = Some(number);
    }

    /// Packet number of the probe in flight.
    pub(crate) fn probe(&self) -> Option<u64> {
        self.probe
    }

    /// True if this packet is the probe in flight.
    #[inline]
    pub(crate) fn is_probe(&self, number: u64) -> bool {
        self.probe == Some(number)
    }

    /// True if a reference packet must follow the probe in flight, alone in its packet.
    pub(crate) fn wants_short_probe(&self) -> bool {
        self.with_short_probe && self.probe.is_some()
    }

    /// The probe in flight, if the ack of a later packet proves it lost.
    pub(crate) fn probe_with_reference(&self) -> Option<u64> {
        self.probe.filter(|_| self.with_short_probe)
    }

    /// True if an ack may change anything here, which is rare.
    #[inline]
    pub(crate) fn is_pending(&self, now: u64) -> bool {
        self.probe.is_some() || self.size_before > 0 || now >= self.raise_at
    }

    /// Since when no packet long enough for data passes; `None`: such packets pass.
    pub(crate) fn no_data_since(&self) -> Option<u64> {
        self.no_data_since
    }

    fn ask(&mut self, size: usize, with_short_probe: bool) {
        self.asked = size;
        self.tries = 0;
        self.with_short_probe = with_short_probe;
        self.probe = None;
    }

    /// Probes a size, together with a short reference probe. Returns whether the short probe must
    /// leave.
    fn probe_with_short(&mut self, size: usize) -> bool {
        self.ask(size, true);
        self.wants_probe = size > 0;
        size > 0
    }

    /// Continues a pending search above the size in use. A peer that is not `reliable` answers no
    /// probes, so the probed size is taken for proven.
    pub(crate) fn resume(&mut self, reliable: bool) {
        let larger = self.asked > self.datagram_max;
        self.wants_probe = larger && reliable;
        if larger && !reliable {
            self.on_probe_acked(self.asked, 0);
        }
    }

    /// Handles an ack of the size probe: the path takes packets of its size.
    pub(crate) fn on_probe_acked(&mut self, bytes: usize, now: u64) {
        self.datagram_max = self.datagram_max.max(bytes);
        self.doubts = 0;
        self.no_data_since = None;
        self.ask(0, false);
        self.ask_more_later(now);
    }

    /// Ends a size search whose probe was given up with all packets in flight.
    pub(crate) fn forget_probe(&mut self, now: u64) {
        if self.probe.is_some() {
            self.ask(0, false);
            self.wants_probe = false;
            self.ask_more_later(now);
        }
    }

    /// Notes that a packet of `bytes` bytes was acknowledged, the newest so far.
    #[inline]
    pub(crate) fn on_acked(&mut self, bytes: u32) {
        let bytes = (bytes as usize).min(self.datagram_max);
        self.newest_acked_bytes = bytes;
        if self.doubts > 0 && bytes >= self.doubted {
            self.doubts = 0;
        }
        if bytes as u64 >= BLOCK_BYTES {
            self.no_data_since = None;
        }
    }

    /// Notes that a packet of `bytes` bytes arrived after it was declared lost: it was reordered,
    /// not too long. Undoes a pending doubt, probe or shrink caused by this size (RFC 8899, 4.4: a
    /// size is judged by packets of that size). Returns true if a shrink is undone before it was
    /// reported.
    #[cold]
    pub(crate) fn on_late_arrival(&mut self, bytes: usize) -> bool {
        if self.fixed || bytes > self.ceiling {
            return false;
        }
        if self.doubts > 0 && bytes >= self.doubted {
            self.doubts = 0;
        }
        let shrank = bytes > self.datagram_max;
        let undone = shrank && self.size_before > 0 && bytes >= self.size_before;
        if undone {
            self.size_before = 0;
        }
        if shrank {
            self.datagram_max = bytes;
            self.no_data_since = None;
        }
        if self.asked > 0 && bytes >= self.asked {
            self.ask(0, false);
            self.wants_probe = false;
        }
        undone
    }

    /// Counts a doubt about a packet of `bytes` bytes that was lost, or overtaken during a
    /// retransmission, while a packet sent later was acknowledged. (Each datagram of a write is a
    /// packet.) Returns true if a short reference probe must leave.
    #[must_use]
    pub(crate) fn suspect_black_hole(&mut self, bytes: u32, now: u64) -> bool {
        let bytes = (bytes as usize).min(self.datagram_max);
        if self.fixed || bytes <= self.newest_acked_bytes || self.asked > 0 {
            return false;
        }
        self.doubted = match self.doubts {
            0 => bytes,
            _ => bytes.min(self.doubted),
        };
        self.doubts = self.doubts.saturating_add(1);
        let due = now >= self.doubted_ns + BLACK_HOLE_SIGN_EVERY_NS;
        if self.doubts < BLACK_HOLE_SIGNS || !due {
            return false;
        }
        self.doubted_ns = now;
        self.probe_with_short(self.datagram_max)
    }

    /// The path came back, but its short probes prove nothing about longer packets: a single loss
    /// is now enough to probe the size. (Probing the size at once would make many paths with a loss
    /// of a tenth fail again and again, because their reference packets get lost.)
    pub(crate) fn suspect_black_hole_sooner(&mut self) {
        if self.asked == 0 && self.doubts == 0 {
            (self.doubts, self.doubted) = (BLACK_HOLE_SIGNS - 1, self.datagram_max);
        }
    }

    /// Handles a lost size probe: tries the same size again, then a smaller one. `fair`: a packet
    /// sent after the probe arrived.
    #[must_use]
    pub(crate) fn on_probe_lost(&mut self, now: u64, fair: bool) -> ProbeLost {
        let (before, was_small) = (self.datagram_max, self.no_data_since);
        let short_probe = self.next_probe(now, fair);
        let shrank = self.datagram_max < before;
        ProbeLost {
            short_probe,
            shrank,
            too_small: !shrank && self.no_data_since.is_some() && was_small.is_none(),
        }
    }

    /// Chooses the probe after a lost one. Returns true if a short reference probe must leave.
    fn next_probe(&mut self, now: u64, fair: bool) -> bool {
        self.probe = None;
        let confirms = self.asked == self.datagram_max;
        if self.with_short_probe && !fair {
            // The peer or the path is silent: the next loss, or the raise timer, probes again.
            self.ask(0, false);
            self.ask_more_later(now);
            return false;
        }
        self.tries += 1;
        let most = if confirms { TRIES_BLACK_HOLE } else { TRIES };
        if self.tries < most {
            self.wants_probe = true;
            return self.with_short_probe;
        }
        let (failed, with_short_probe) = (self.asked, self.with_short_probe);
        if confirms {
            self.shrink(now);
        }
        let smaller = PROBE_SIZES.iter().copied().find(|&s| s < failed);
        let next = smaller.filter(|&s| s > self.datagram_max).unwrap_or(0);
        self.ask(next, with_short_probe);
        self.wants_probe = next > 0;
        if next == 0 {
            self.ask_more_later(now);
        }
        next > 0 && with_short_probe
    }

    /// Shrinks a path that no longer passes its size.
    fn shrink(&mut self, now: u64) {
        self.doubts = 0;
        if self.datagram_max <= DATAGRAM_FLOOR {
            self.no_data_since.get_or_insert(now);
            return;
        }
        (self.raise_at, self.raise_every) = (u64::MAX, RAISE_NS);
        if self.size_before == 0 {
            self.size_before = self.datagram_max;
        }
        self.datagram_max = DATAGRAM_FLOOR;
    }

    fn ask_more_later(&mut self, now: u64) {
        if !self.fixed && self.datagram_max < self.ceiling && self.raise_at == u64::MAX {
            self.raise_at = now + self.raise_every;
            self.raise_every = (2 * self.raise_every).min(RAISE_CAP_NS);
        }
    }

    /// True if a probe for a larger size is due.
    pub(crate) fn is_raise_due(&self, now: u64) -> bool {
        now >= self.raise_at && self.asked == 0
    }

    /// Probes the largest size again; returns true if a short reference probe is to leave.
    #[must_use]
    pub(crate) fn raise(&mut self) -> bool {
        self.raise_at = u64::MAX;
        self.probe_with_short(self.ceiling)
    }

    /// The kernel or the network reported that packets above `max` bytes do not pass. Returns true
    /// if `max` is below the size in use.
    pub(crate) fn on_too_big(&mut self, max: usize, now: u64) -> bool {
        let max = max.max(DATAGRAM_FLOOR);
        let less = max < self.datagram_max;
        self.datagram_max = self.datagram_max.min(max);
        if self.asked > max {
            let next = if max > self.datagram_max { max } else { 0 };
            self.ask(next, false);
            self.wants_probe = next > 0;
        }
        if self.asked == 0 {
            self.ask_more_later(now);
        }
        less
    }

    /// Returns the sizes before and after a shrink, once, when the new size is known.
    pub(crate) fn take_report(&mut self) -> Option<(usize, usize)> {
        if self.size_before == 0 || self.asked > 0 {
            return None;
        }
        let from = core::mem::take(&mut self.size_before);
        Some((from, self.datagram_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    /// A search that found 8,948 bytes.
    fn found() -> MtuSearch {
        let mut mtu = MtuSearch::new(8_948);
        mtu.resume(true);
        assert!(mtu.wants_probe());
        assert_eq!(mtu.take_probe(), 8_948);
        mtu.on_probe_sent(7);
        assert!(mtu.is_probe(7) && !mtu.wants_short_probe());
        mtu.on_probe_acked(8_948, MS);
        assert_eq!(mtu.datagram_max(), 8_948);
        mtu
    }

    /// Two losses of full packets, each after a shorter packet was acknowledged.
    fn doubt(mtu: &mut MtuSearch, now: u64) -> bool {
        mtu.on_acked(600);
        let first = mtu.suspect_black_hole(8_948, now);
        assert!(!first);
        mtu.suspect_black_hole(8_948, now)
    }

    #[test]
    fn a_known_size_is_never_probed() {
        let mut mtu = MtuSearch::fixed(64_000);
        mtu.resume(true);
        assert!(!doubt(&mut mtu, 100 * MS));
        assert!(!mtu.wants_probe() && !mtu.is_pending(u64::MAX - 1));
        assert_eq!(mtu.datagram_max(), 64_000);
    }

    #[test]
    fn a_peer_without_acks_takes_the_size_that_both_rails_declare() {
        let mut mtu = MtuSearch::new(8_948);
        mtu.resume(false);
        assert_eq!((mtu.datagram_max(), mtu.wants_probe()), (8_948, false));
    }

    #[test]
    fn a_size_that_does_not_pass_is_followed_by_smaller_ones() {
        let mut mtu = MtuSearch::new(8_948);
        mtu.resume(true);
        let mut sizes = Vec::new();
        for number in 0.. {
            if !mtu.wants_probe() {
                break;
            }
            sizes.push(mtu.take_probe());
            mtu.on_probe_sent(number);
            assert_eq!(mtu.on_probe_lost(MS, true), ProbeLost::default());
        }
        let tried = [8_948, 4_052, 1_452, 1_412, 1_372];
        assert_eq!(sizes, tried.map(|size| [size; 3]).concat());
        assert!(!mtu.is_raise_due(MS + RAISE_NS - 1) && mtu.is_raise_due(MS + RAISE_NS));
        assert!(mtu.raise());
        assert_eq!(mtu.take_probe(), 8_948);
    }

    #[test]
    fn a_black_hole_is_confirmed_by_four_probes_and_reported_once() {
        let mut mtu = found();
        assert!(doubt(&mut mtu, 100 * MS));
        for number in 0..4 {
            assert_eq!(mtu.take_probe(), 8_948);
            mtu.on_probe_sent(number);
            assert!(mtu.wants_short_probe());
            let lost = mtu.on_probe_lost(100 * MS, true);
            assert_eq!((lost.short_probe, lost.shrank), (true, number == 3));
        }
        assert_eq!(
            (mtu.datagram_max(), mtu.take_report()),
            (DATAGRAM_FLOOR, None)
        );
        assert_eq!(mtu.take_probe(), 4_052);
        mtu.on_probe_sent(9);
        mtu.on_probe_acked(4_052, 101 * MS);
        assert_eq!(mtu.take_report(), Some((8_948, 4_052)));
        assert_eq!(mtu.take_report(), None);
    }

    #[test]
    fn a_probe_whose_reference_is_silent_proves_nothing() {
        let mut mtu = found();
        assert!(doubt(&mut mtu, 100 * MS));
        mtu.on_probe_sent(1);
        assert_eq!(mtu.on_probe_lost(100 * MS, false), ProbeLost::default());
        assert_eq!(mtu.datagram_max(), 8_948);
    }

    #[test]
    fn a_packet_that_was_only_reordered_undoes_the_shrink() {
        let mut mtu = found();
        assert!(doubt(&mut mtu, 100 * MS));
        for number in 0..4 {
            mtu.on_probe_sent(number);
            let _ = mtu.on_probe_lost(100 * MS, true);
        }
        assert!(mtu.on_late_arrival(8_948));
        assert_eq!((mtu.datagram_max(), mtu.take_report()), (8_948, None));
        assert!(!mtu.wants_probe());
    }

    #[test]
    fn a_path_without_the_least_size_is_too_small_until_data_passes() {
        let mut mtu = MtuSearch::new(DATAGRAM_FLOOR);
        mtu.on_acked(100);
        assert!(!mtu.suspect_black_hole(548, 100 * MS));
        assert!(mtu.suspect_black_hole(548, 100 * MS));
        for number in 0..4 {
            mtu.on_probe_sent(number);
            let lost = mtu.on_probe_lost(100 * MS, true);
            assert_eq!((lost.shrank, lost.too_small), (false, number == 3));
        }
        assert_eq!(mtu.no_data_since(), Some(100 * MS));
        mtu.on_acked(548);
        assert_eq!(mtu.no_data_since(), None);
    }

    #[test]
    fn a_reported_limit_is_taken_at_once() {
        let mut mtu = found();
        assert!(mtu.on_too_big(1_452, MS));
        assert_eq!(mtu.datagram_max(), 1_452);
        assert!(!mtu.on_too_big(4_052, MS));
        assert!(mtu.on_too_big(10, MS));
        assert_eq!(mtu.datagram_max(), DATAGRAM_FLOOR);
        assert!(mtu.is_raise_due(MS + RAISE_NS));
    }
}
