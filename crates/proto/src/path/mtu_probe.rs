//! How large the packets are that a path carries: asked at first, doubted when large ones are lost
//! while small ones arrive, asked again when a while has passed (RFC 8899).
//!
//! Nobody tells of a switch that drops what is too long for it. What shows it is that a packet is
//! lost and a shorter one that left later is not. That may be chance, so the path is asked: a probe
//! as long as its longest packets, and a short one behind it as a witness. If the witness arrives
//! several times and the probe never does, the path shrinks to what IPv4 promises, and is asked for
//! the sizes between. Then and when, ever more rarely, it is asked for the largest again.
//!
//! A path on which nothing passes that could hold data is left, like one that fell. If it is the
//! last, its peer counts as dead when that has lasted for the time of a silent one.

use crate::base::types::{PathReason, PathState};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::given_up::Lost;
use crate::state::path::Path;
use crate::state::sent_packets::{FrameRef, SentState};
use crate::state::sizes::{DATAGRAM_BASE, DATAGRAM_FLOOR, RAISE_NS};
use crate::tx::packet_builder::Builder;
use alloc::boxed::Box;
use marline_wire::{Frame, GRANULE};

/// Datagram sizes to try when the largest did not get through: jumbo frames, Ethernet, Ethernet
/// in the usual tunnels, IPv6's minimum, and two between that and IPv4's.
const PROBE_SIZES: [usize; 8] = [8_948, 4_052, 1_452, 1_412, 1_372, DATAGRAM_BASE, 1_152, 852];

/// Probes of one size.
const TRIES: u8 = 3;
/// The same of the size that a path was found to take before. (A path that loses a third of its
/// packets at random loses all of them, and none of their witnesses, once in 400 times; and it is
/// asked only when what it lost says so.)
const TRIES_DOUBTED: u8 = 4;
/// Losses that shorter packets survived, one after another, before a path is asked.
const DOUBTS: u8 = 2;
/// A path is not asked again sooner than this: chance takes longer, too.
const DOUBT_EVERY_NS: u64 = 10_000_000;
/// Repairs of a path that never worked after which its probes leave alone: as long as it is likely
/// that the peer just begins, what it needs is in the same packet.
const LONE_AFTER: u16 = 4;
const RAISE_CAP_NS: u64 = 64_000_000_000;

impl Path {
    /// Asks for the sizes above the one in use, if that was begun and not ended.
    pub(crate) fn ask_size(&mut self, reliable: bool) {
        let larger = self.sizes.asked > self.datagram_max;
        self.want_padded = larger && reliable;
        if larger && !reliable {
            self.size_passes(self.sizes.asked, 0);
        }
    }

    fn ask_witnessed(&mut self, size: usize) {
        self.sizes.ask(size, true);
        self.want_padded = size > 0;
        self.want_ping |= size > 0;
    }

    /// The probe came through: the path takes packets of its size.
    pub(crate) fn size_passes(&mut self, bytes: usize, now: u64) {
        self.datagram_max = self.datagram_max.max(bytes);
        self.sizes.doubts = 0;
        self.sizes.choked_since = None;
        self.sizes.ask(0, false);
        self.ask_more_later(now);
    }

    /// All that was under way was given up, a probe with it.
    pub(crate) fn forget_size_probe(&mut self, now: u64) {
        if self.sizes.probe.is_some() {
            self.sizes.ask(0, false);
            self.want_padded = false;
            self.ask_more_later(now);
        }
    }

    /// An ack shows that a packet of so many bytes arrived.
    #[inline]
    pub(crate) fn size_arrived(&mut self, bytes: u32) {
        let bytes = (bytes as usize).min(self.datagram_max);
        self.newest_acked_bytes = bytes;
        let sizes = &mut self.sizes;
        if sizes.doubts > 0 && bytes >= sizes.doubted {
            sizes.doubts = 0;
        }
        if bytes as u64 >= GRANULE {
            sizes.choked_since = None;
        }
    }

    /// A packet of so many bytes that was given up arrived after all: it was overtaken, not too
    /// long. What the path is doubted or asked for, or shrank for, is taken back (RFC 8899, 4.4: a
    /// size is judged by what becomes of packets of that size).
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
        if shrank && sizes.shrank_from > 0 && bytes >= sizes.shrank_from {
            sizes.shrank_from = 0; // nobody was told
            self.stats.shrinks = self.stats.shrinks.saturating_sub(1);
        }
        if shrank {
            self.datagram_max = bytes;
            self.sizes.choked_since = None;
        }
        if self.sizes.asked > 0 && bytes >= self.sizes.asked {
            self.sizes.ask(0, false);
            self.want_padded = false;
        }
    }

    /// Time after which a probe of the path's size that a later packet overtook is lost (the probe
    /// timer of RFC 8899, as short as what reorders leaves room for): that of a lost packet is a
    /// round trip and a quarter, and what is given up wrongly costs a packet there, here a size.
    pub(crate) fn size_probe_ns(&self) -> u64 {
        4 * (self.srtt_ns + self.rttvar_ns.min(self.srtt_ns))
    }

    /// Something on the path was acknowledged. What waited before that, and was repaired without an
    /// answer, was overtaken.
    #[cold]
    pub(crate) fn doubt_repaired(&mut self, now: u64) {
        let oldest = self.ring.oldest_waiting();
        let overtaken = oldest.filter(|&(number, _)| number < self.largest_acked);
        if let Some((_, sent)) = overtaken.filter(|&(number, _)| !self.sizes.is_probe(number)) {
            self.doubt_size(sent.bytes, now);
        }
    }

    /// A packet of so many bytes was lost, or overtaken in a repair, and the newest one that was
    /// acknowledged left later. (Of a write each datagram is a packet.)
    pub(crate) fn doubt_size(&mut self, bytes: u32, now: u64) {
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
        if sizes.doubts >= DOUBTS && now >= sizes.doubted_ns + DOUBT_EVERY_NS {
            sizes.doubted_ns = now;
            self.ask_witnessed(self.datagram_max);
        }
    }

    /// The path came back, and its probes say nothing of packets longer than they are: one loss
    /// is enough. (To ask at once makes many paths that lose a tenth fall again and again: the
    /// witnesses get lost.)
    pub(crate) fn doubt_sooner(&mut self) {
        if self.sizes.asked == 0 && self.sizes.doubts == 0 {
            (self.sizes.doubts, self.sizes.doubted) = (DOUBTS - 1, self.datagram_max);
        }
    }

    /// Returns whether its probe says something only if nothing long is in the same packet.
    /// `lost`: no path is known to carry.
    pub(crate) fn asks_alone(&self, lost: bool) -> bool {
        let doubted = match self.state {
            PathState::Unproven => self.backoff >= LONE_AFTER,
            PathState::Down => lost || !self.quarantine.active,
            // One time of four: a peer that is silent gets few packets more for that.
            _ => (self.doubtful() && self.backoff % 4 == 2) || self.sizes.wants_witness(),
        };
        self.want_ping && doubted
    }

    /// The probe was lost: try it again, then a smaller one. `fair`: a packet that left after it
    /// was not.
    fn size_lost(&mut self, now: u64, fair: bool) {
        let sizes = &mut self.sizes;
        sizes.probe = None;
        let confirms = sizes.asked == self.datagram_max;
        if sizes.witnessed && !fair {
            // The peer is silent, or the path is: the next loss asks again, or time does.
            sizes.ask(0, false);
            return self.ask_more_later(now);
        }
        sizes.tries += 1;
        let most = if confirms { TRIES_DOUBTED } else { TRIES };
        if sizes.tries < most {
            self.want_padded = true;
            self.want_ping |= sizes.witnessed;
            return;
        }
        let (failed, witnessed) = (sizes.asked, sizes.witnessed);
        if confirms {
            self.shrink(now);
        }
        let smaller = PROBE_SIZES.iter().copied().find(|&s| s < failed);
        let next = smaller.filter(|&s| s > self.datagram_max).unwrap_or(0);
        self.sizes.ask(next, witnessed);
        self.want_padded = next > 0;
        self.want_ping |= next > 0 && witnessed;
        if next == 0 {
            self.ask_more_later(now);
        }
    }

    /// The size in use does not pass any more.
    fn shrink(&mut self, now: u64) {
        let sizes = &mut self.sizes;
        sizes.doubts = 0;
        if self.datagram_max <= DATAGRAM_FLOOR {
            sizes.choked_since.get_or_insert(now);
            return;
        }
        self.stats.shrinks += 1;
        (sizes.raise_at, sizes.raise_every) = (u64::MAX, RAISE_NS);
        if sizes.shrank_from == 0 {
            sizes.shrank_from = self.datagram_max;
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

    /// Asks for more, if it is time for that.
    fn raise_size(&mut self, now: u64) {
        if now >= self.sizes.raise_at && self.sizes.asked == 0 && self.healthy() {
            self.sizes.raise_at = u64::MAX;
            self.ask_witnessed(self.sizes.ceiling);
        }
    }

    /// The kernel or the network said that packets above `max` bytes do not pass; whether that is
    /// less than what was sent.
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
    /// The probe of a path's size was lost, which says nothing of its health.
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
        let (before, choked) = (path.datagram_max, path.sizes.choked_since);
        path.size_lost(now, path.acked_any && path.largest_acked > number);
        let (after, chokes) = (path.datagram_max, path.sizes.choked_since);
        if after < before {
            self.evacuate(conn, at);
        } else if chokes.is_some() && choked.is_none() {
            self.path_chokes(now, conn, at);
        }
        self.report_size(conn, at);
        self.agenda.mark_ready(conn);
    }

    /// An ack came: whether the probe of a path's size was overtaken by its witness. Whether it is
    /// time to ask for more is also seen here: only a path in use is asked.
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
            sent.is_none_or(|sent| now.saturating_sub(sent.sent_ns) > path.size_probe_ns())
        };
        let overtaken = |n: u64| sizes.witnessed && path.largest_acked > n && overdue(n);
        if sizes.probe.is_some_and(overtaken) {
            self.probe_lost(now, conn, at);
        }
        conn.paths[at].raise_size(now);
        self.report_size(conn, at);
    }

    /// Nothing that could hold data passes on a path: it is left, if there is another.
    fn path_chokes(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        self.tell_shrank(conn, at, (DATAGRAM_FLOOR, 0), PathReason::Size);
        self.path_down(now, conn, at, PathReason::Size);
    }

    /// Says once that a path shrank, when it is known to what.
    fn report_size(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        if path.sizes.shrank_from == 0 || path.sizes.asked > 0 {
            return;
        }
        let from = core::mem::take(&mut path.sizes.shrank_from);
        let to = path.datagram_max;
        self.tell_shrank(conn, at, (from, to), PathReason::Size);
    }
}

impl Builder<'_, '_> {
    /// Fills a probe of a path that was given up: it comes back when it carries data, not when it
    /// carries next to nothing.
    pub(crate) fn fill_probe(&mut self) {
        if self.frames.contains(&FrameRef::Ping { padded: false }) {
            let len = (self.writer.room().saturating_sub(8) / 8 * 8) as u16;
            self.control(&Frame::Pad { len, head: 0 }, None);
        }
    }
}

impl Conn {
    /// Returns whether the peer is heard, and yet nothing gets through to it for so long: no packet
    /// at all, or none that could hold data.
    pub(crate) fn chokes(&mut self, now: u64, timeout_ns: u64) -> bool {
        if !self.owes() {
            self.life.unanswered_since = None;
            return false;
        }
        let long = |since: u64| now.saturating_sub(since) >= timeout_ns;
        let unanswered = long(*self.life.unanswered_since.get_or_insert(now));
        let mut usable = self.paths.iter().filter(|p| p.usable()).peekable();
        let full = |p: &Path| p.sizes.choked_since.is_some_and(long);
        unanswered || (usable.peek().is_some() && usable.all(full))
    }

    /// For how long nothing got through to the peer, or nothing that could hold data, in ns.
    pub(crate) fn unanswered_ns(&self, now: u64) -> u64 {
        let small = self.paths.iter().filter_map(|p| p.sizes.choked_since);
        let since = small.chain(self.life.unanswered_since).min();
        since.map_or(0, |since| now.saturating_sub(since))
    }
}
