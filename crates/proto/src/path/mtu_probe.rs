//! Packet size of a path (path MTU discovery, RFC 8899): probed when the path is new, doubted when
//! long packets are lost while short ones arrive, probed again after a while.
//!
//! A black hole sends no error. Its sign is a lost packet where a shorter packet, sent later,
//! arrived. As that may be random, the path is probed: a padded probe of its longest packets' size,
//! followed by a short reference packet. If the short one arrives several times and the padded one
//! never does, the path shrinks to IPv4's minimum and the sizes in between are probed. Later the
//! largest size is probed again, with growing intervals.
//!
//! A path that passes no packet long enough for data is given up. If it is the last path, the peer
//! counts as dead once this lasted for the silence timeout.

use crate::base::types::{PathReason, PathState};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::given_up::Lost;
use crate::state::path::Path;
use crate::state::sent_packets::{FrameRef, SentState};
use crate::state::sizes::{DATAGRAM_BASE, DATAGRAM_FLOOR, RAISE_NS};
use crate::tx::packet_builder::Builder;
use alloc::boxed::Box;
use marline_wire::{Frame, BLOCK_BYTES};

/// Datagram sizes to try when the largest did not get through: jumbo frames, Ethernet, Ethernet in
/// the usual tunnels, IPv6's minimum, and two sizes between that and IPv4's.
const PROBE_SIZES: [usize; 8] = [8_948, 4_052, 1_452, 1_412, 1_372, DATAGRAM_BASE, 1_152, 852];

/// Probes per size.
const TRIES: u8 = 3;
/// Probes to confirm that a size in use fails. (A path with a random loss of a third loses all of
/// them, but none of their short reference packets, once in 400 times; and it is probed only after
/// suspicious losses.)
const TRIES_BLACK_HOLE: u8 = 4;
/// Losses in a row that shorter packets survived, before the path is probed.
const BLACK_HOLE_SIGNS: u8 = 2;
/// Least interval between two such probes; random losses that look alike are rarer.
const BLACK_HOLE_SIGN_EVERY_NS: u64 = 10_000_000;
/// Unanswered retransmissions of an unproven path before its probes leave alone. Until then the
/// peer is probably just starting, and the same packet has the data that it needs.
const LONE_AFTER: u16 = 4;
const RAISE_CAP_NS: u64 = 64_000_000_000;

impl Path {
    /// Continues a size search above the size in use, if one is pending.
    pub(crate) fn ask_size(&mut self, reliable: bool) {
        let larger = self.sizes.asked > self.datagram_max;
        self.want_padded = larger && reliable;
        if larger && !reliable {
            self.size_passes(self.sizes.asked, 0);
        }
    }

    fn probe_with_short(&mut self, size: usize) {
        self.sizes.ask(size, true);
        self.want_padded = size > 0;
        self.want_ping |= size > 0;
    }

    /// Handles an ack of the size probe: the path takes packets of its size.
    pub(crate) fn size_passes(&mut self, bytes: usize, now: u64) {
        self.datagram_max = self.datagram_max.max(bytes);
        self.sizes.doubts = 0;
        self.sizes.no_data_since = None;
        self.sizes.ask(0, false);
        self.ask_more_later(now);
    }

    /// Ends a size search whose probe was given up with all packets in flight.
    pub(crate) fn forget_size_probe(&mut self, now: u64) {
        if self.sizes.probe.is_some() {
            self.sizes.ask(0, false);
            self.want_padded = false;
            self.ask_more_later(now);
        }
    }

    /// Notes that a packet of so many bytes was acknowledged.
    #[inline]
    pub(crate) fn size_arrived(&mut self, bytes: u32) {
        let bytes = (bytes as usize).min(self.datagram_max);
        self.newest_acked_bytes = bytes;
        let sizes = &mut self.sizes;
        if sizes.doubts > 0 && bytes >= sizes.doubted {
            sizes.doubts = 0;
        }
        if bytes as u64 >= BLOCK_BYTES {
            sizes.no_data_since = None;
        }
    }

    /// Notes that a packet of so many bytes arrived after it was declared lost: it was reordered,
    /// not too long. Undoes a pending doubt, probe or shrink due to this size (RFC 8899, 4.4: a
    /// size is judged by packets of that size).
    #[cold]
    pub(crate) fn size_arrived_late(&mut self, bytes: usize) {
        let sizes = &mut self.sizes;
        if sizes.fixed || bytes > sizes.ceiling {
            return;
        }
        if sizes.doubts > 0 && bytes >= sizes.doubted {
            sizes.doubts = 0;
        }
        let shrank = bytes > self.datagram_max;
        if shrank && sizes.size_before > 0 && bytes >= sizes.size_before {
            sizes.size_before = 0; // not reported yet
            self.stats.shrinks = self.stats.shrinks.saturating_sub(1);
        }
        if shrank {
            self.datagram_max = bytes;
            self.sizes.no_data_since = None;
        }
        if self.sizes.asked > 0 && bytes >= self.sizes.asked {
            self.sizes.ask(0, false);
            self.want_padded = false;
        }
    }

    /// Handles the first ack after retransmissions without an answer: an older packet that still
    /// waits was overtaken.
    #[cold]
    pub(crate) fn doubt_resent(&mut self, now: u64) {
        let oldest = self.ring.oldest_waiting();
        let overtaken = oldest.filter(|&(number, _)| number < self.largest_acked);
        if let Some((_, sent)) = overtaken.filter(|&(number, _)| !self.sizes.is_probe(number)) {
            self.suspect_black_hole(sent.bytes, now);
        }
    }

    /// Counts a doubt for a packet of so many bytes that was lost, or overtaken during a
    /// retransmission, while a packet sent later was acknowledged. (Each datagram of a write is a
    /// packet.)
    pub(crate) fn suspect_black_hole(&mut self, bytes: u32, now: u64) {
        let bytes = (bytes as usize).min(self.datagram_max);
        let sizes = &mut self.sizes;
        if sizes.fixed || bytes <= self.newest_acked_bytes || sizes.asked > 0 {
            return;
        }
        sizes.doubted = match sizes.doubts {
            0 => bytes,
            _ => bytes.min(sizes.doubted),
        };
        sizes.doubts = sizes.doubts.saturating_add(1);
        if sizes.doubts >= BLACK_HOLE_SIGNS && now >= sizes.doubted_ns + BLACK_HOLE_SIGN_EVERY_NS {
            sizes.doubted_ns = now;
            self.probe_with_short(self.datagram_max);
        }
    }

    /// The path came back, but its short probes prove nothing about longer packets: one loss is
    /// enough to probe the size. (An immediate size probe makes many paths with a loss of a tenth
    /// fail again and again, as their reference packets get lost.)
    pub(crate) fn suspect_black_hole_sooner(&mut self) {
        if self.sizes.asked == 0 && self.sizes.doubts == 0 {
            (self.sizes.doubts, self.sizes.doubted) = (BLACK_HOLE_SIGNS - 1, self.datagram_max);
        }
    }

    /// True if the probe proves something only in a packet without long frames. `lost`: no path is
    /// known to carry packets.
    pub(crate) fn asks_alone(&self, lost: bool) -> bool {
        let doubted = match self.state {
            PathState::Unproven => self.backoff >= LONE_AFTER,
            PathState::Down => lost || !self.isolation.active,
            // One probe of four: a silent peer gets few extra packets.
            _ => (self.doubtful() && self.backoff % 4 == 2) || self.sizes.wants_short_probe(),
        };
        self.want_ping && doubted
    }

    /// Handles a lost size probe: tries the size again, then a smaller one. `fair`: a packet sent
    /// after it arrived.
    fn size_lost(&mut self, now: u64, fair: bool) {
        let sizes = &mut self.sizes;
        sizes.probe = None;
        let confirms = sizes.asked == self.datagram_max;
        if sizes.with_short_probe && !fair {
            // The peer or the path is silent: the next loss, or the raise timer, probes again.
            sizes.ask(0, false);
            return self.ask_more_later(now);
        }
        sizes.tries += 1;
        let most = if confirms { TRIES_BLACK_HOLE } else { TRIES };
        if sizes.tries < most {
            self.want_padded = true;
            self.want_ping |= sizes.with_short_probe;
            return;
        }
        let (failed, with_short_probe) = (sizes.asked, sizes.with_short_probe);
        if confirms {
            self.shrink(now);
        }
        let smaller = PROBE_SIZES.iter().copied().find(|&s| s < failed);
        let next = smaller.filter(|&s| s > self.datagram_max).unwrap_or(0);
        self.sizes.ask(next, with_short_probe);
        self.want_padded = next > 0;
        self.want_ping |= next > 0 && with_short_probe;
        if next == 0 {
            self.ask_more_later(now);
        }
    }

    /// Shrinks a path that no longer passes its size.
    fn shrink(&mut self, now: u64) {
        let sizes = &mut self.sizes;
        sizes.doubts = 0;
        if self.datagram_max <= DATAGRAM_FLOOR {
            sizes.no_data_since.get_or_insert(now);
            return;
        }
        self.stats.shrinks += 1;
        (sizes.raise_at, sizes.raise_every) = (u64::MAX, RAISE_NS);
        if sizes.size_before == 0 {
            sizes.size_before = self.datagram_max;
        }
        self.datagram_max = DATAGRAM_FLOOR;
    }

    fn ask_more_later(&mut self, now: u64) {
        let sizes = &mut self.sizes;
        if !sizes.fixed && self.datagram_max < sizes.ceiling && sizes.raise_at == u64::MAX {
            sizes.raise_at = now + sizes.raise_every;
            sizes.raise_every = (2 * sizes.raise_every).min(RAISE_CAP_NS);
        }
    }

    /// Probes for a larger size, if that is due.
    fn raise_size(&mut self, now: u64) {
        if now >= self.sizes.raise_at && self.sizes.asked == 0 && self.healthy() {
            self.sizes.raise_at = u64::MAX;
            self.probe_with_short(self.sizes.ceiling);
        }
    }

    /// The kernel or the network reported that packets above `max` bytes do not pass. Returns true
    /// if `max` is below the size in use.
    pub(crate) fn too_big(&mut self, max: usize, now: u64) -> bool {
        let max = max.max(DATAGRAM_FLOOR);
        let less = max < self.datagram_max;
        self.datagram_max = self.datagram_max.min(max);
        if self.sizes.asked > max {
            let next = if max > self.datagram_max { max } else { 0 };
            self.sizes.ask(next, false);
            self.want_padded = next > 0;
        }
        if self.sizes.asked == 0 {
            self.ask_more_later(now);
        }
        less
    }
}

impl Node {
    /// Handles a lost size probe, which proves nothing about the path's health.
    pub(crate) fn probe_lost(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let path = &mut conn.paths[at];
        let Some(number) = path.sizes.probe else {
            return;
        };
        if let Some(sent) = path.ring.get(number) {
            path.given_up.push(Lost {
                number,
                bytes: sent.bytes,
                probe: true,
            });
        }
        path.ring.settle(number, SentState::Lost);
        path.ring.retire();
        let (before, choked) = (path.datagram_max, path.sizes.no_data_since);
        path.size_lost(now, path.acked_any && path.largest_acked > number);
        let (after, delivers_nothing) = (path.datagram_max, path.sizes.no_data_since);
        if after < before {
            self.requeue_in_flight(conn, at);
        } else if delivers_nothing.is_some() && choked.is_none() {
            self.path_chokes(now, conn, at);
        }
        self.report_size(conn, at);
        self.run_queue.mark_ready(conn);
    }

    /// After an ack: checks whether a later packet overtook the size probe. Also starts a probe for
    /// a larger size when due: only a path in use is probed.
    #[inline]
    pub(crate) fn weigh_size(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        if conn.paths[at].sizes.waits(now) {
            self.weigh_size_now(now, conn, at);
        }
    }

    #[cold]
    fn weigh_size_now(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let sizes = &conn.paths[at].sizes;
        let path = &conn.paths[at];
        let overdue = |n: u64| {
            let sent = path.ring.get(n);
            sent.is_none_or(|sent| now.saturating_sub(sent.sent_ns) > path.rtt.size_probe_ns())
        };
        let overtaken = |n: u64| sizes.with_short_probe && path.largest_acked > n && overdue(n);
        if sizes.probe.is_some_and(overtaken) {
            self.probe_lost(now, conn, at);
        }
        conn.paths[at].raise_size(now);
        self.report_size(conn, at);
    }

    /// Gives up a path on which no packet long enough for data passes, if there is another.
    fn path_chokes(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        self.tell_shrank(conn, at, (DATAGRAM_FLOOR, 0), PathReason::Size);
        self.path_down(now, conn, at, PathReason::Size);
    }

    /// Reports once that a path shrank, when the new size is known.
    fn report_size(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        if path.sizes.size_before == 0 || path.sizes.asked > 0 {
            return;
        }
        let from = core::mem::take(&mut path.sizes.size_before);
        let to = path.datagram_max;
        self.tell_shrank(conn, at, (from, to), PathReason::Size);
    }
}

impl Builder<'_, '_> {
    /// Pads the probe of a path that is down: the path comes up when it passes long packets, not
    /// when only short ones pass.
    pub(crate) fn fill_probe(&mut self) {
        if self.frames.contains(&FrameRef::Ping { padded: false }) {
            let len = (self.writer.room().saturating_sub(8) / 8 * 8) as u16;
            self.control(&Frame::Pad { len, head: 0 }, None);
        }
    }
}

impl Conn {
    /// True if the peer is heard, yet for `timeout_ns` no packet to it was acknowledged, or none
    /// long enough for data.
    pub(crate) fn delivers_nothing(&mut self, now: u64, timeout_ns: u64) -> bool {
        if !self.owes() {
            self.life.unanswered_since = None;
            return false;
        }
        let long = |since: u64| now.saturating_sub(since) >= timeout_ns;
        let unanswered = long(*self.life.unanswered_since.get_or_insert(now));
        let mut usable = self.paths.iter().filter(|p| p.usable()).peekable();
        let full = |p: &Path| p.sizes.no_data_since.is_some_and(long);
        unanswered || (usable.peek().is_some() && usable.all(full))
    }

    /// How long nothing sent to the peer was acknowledged, or nothing long enough for data, in ns.
    pub(crate) fn unanswered_ns(&self, now: u64) -> u64 {
        let small = self.paths.iter().filter_map(|p| p.sizes.no_data_since);
        let since = small.chain(self.life.unanswered_since).min();
        since.map_or(0, |since| now.saturating_sub(since))
    }
}
