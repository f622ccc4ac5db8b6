//! Packet size of a path (path MTU discovery, RFC 8899): probed when the path is new, suspected
//! when long packets are lost while short ones arrive, probed for growth after a while.
//!
//! A black hole sends no error. Its sign is a lost packet where a shorter packet, sent later,
//! arrived. That may be chance, so the path is probed: a probe padded to the size of its longest
//! packets, then a short reference packet. If the short packet arrives several times and the padded
//! probe never does, the path shrinks to IPv4's minimum and the sizes in between are probed. Later
//! the largest size is probed again, at growing intervals.
//!
//! A path that passes no packet long enough for data is given up. If it is the last path, the peer
//! counts as dead once this state has lasted for the silence timeout.

use crate::base::types::{PathReason, PathState};
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::given_up::Lost;
use crate::state::mtu_search::DATAGRAM_FLOOR;
use crate::state::path::Path;
use crate::state::sent_packets::{FrameRef, SentState};
use crate::tx::packet_builder::Builder;
use marline_wire::Frame;

/// Unanswered retransmissions of an unproven path before its probes leave in packets of their own.
/// Until then the peer is probably still starting, and needs the data in the same packet anyway.
const LONE_AFTER: u16 = 4;

impl Path {
    /// Handles the first ack after unanswered retransmissions: an older packet that is still
    /// unacknowledged was overtaken, and may be too long for the path.
    #[cold]
    pub(crate) fn doubt_resent(&mut self, now: u64) {
        let oldest = self.ring.oldest_waiting();
        let overtaken = oldest.filter(|&(number, _)| number < self.loss.largest_acked());
        if let Some((_, sent)) = overtaken.filter(|&(number, _)| !self.mtu.is_probe(number)) {
            self.probing
                .request_if(self.mtu.suspect_black_hole(sent.bytes, now));
        }
    }

    /// Notes that a packet of `bytes` bytes arrived after it was declared lost.
    pub(crate) fn size_arrived_late(&mut self, bytes: usize) {
        if self.mtu.on_late_arrival(bytes) {
            self.stats.shrinks = self.stats.shrinks.saturating_sub(1);
        }
    }

    /// True if a probe must leave in a packet without long frames to prove anything. `lost`: no
    /// path is known to carry packets.
    pub(crate) fn asks_alone(&self, lost: bool) -> bool {
        let doubted = match self.state() {
            PathState::Unproven => self.pto.backoff() >= LONE_AFTER,
            PathState::Down => lost || !self.health.is_isolated(),
            // Every fourth probe: a silent peer gets few extra packets.
            _ => (self.doubtful() && self.pto.backoff() % 4 == 2) || self.mtu.wants_short_probe(),
        };
        self.probing.is_requested() && doubted
    }

    /// Probes for a larger size if the raise timer has expired.
    fn raise_size(&mut self, now: u64) {
        if self.mtu.is_raise_due(now) && self.healthy() {
            self.probing.request_if(self.mtu.raise());
        }
    }
}

impl Recovery<'_> {
    /// Handles a lost size probe, which proves nothing about the path's health.
    pub(crate) fn probe_lost(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        let Some(number) = path.mtu.probe() else {
            return;
        };
        if let Some(sent) = path.ring.get(number) {
            path.loss.on_lost(Lost {
                number,
                bytes: sent.bytes,
                probe: true,
            });
        }
        path.ring.settle(number, SentState::Lost);
        path.ring.retire();
        let fair = path.loss.is_overtaken(number);
        let lost = path.mtu.on_probe_lost(now, fair);
        path.probing.request_if(lost.short_probe);
        path.stats.shrinks += u64::from(lost.shrank);
        if lost.shrank {
            self.requeue_in_flight(conn, at);
        } else if lost.too_small {
            self.leave_small_path(now, conn, at);
        }
        self.actions.events(conn.size_report(at));
        self.actions.mark_ready();
    }

    /// After an ack: checks whether a later packet overtook the size probe, and starts the probe
    /// for a larger size when due. Only a path in use is probed.
    #[inline]
    pub(crate) fn check_size_probe(&mut self, now: u64, conn: &mut Conn, at: usize) {
        if conn.paths[at].mtu.is_pending(now) {
            self.check_size_probe_now(now, conn, at);
        }
    }

    #[cold]
    fn check_size_probe_now(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let path = &conn.paths[at];
        let overdue = |n: u64| {
            let sent = path.ring.get(n);
            sent.is_none_or(|sent| now.saturating_sub(sent.sent_ns) > path.rtt.size_probe_ns())
        };
        let overtaken = |n: u64| path.loss.largest_acked() > n && overdue(n);
        if path.mtu.probe_with_reference().is_some_and(overtaken) {
            self.probe_lost(now, conn, at);
        }
        conn.paths[at].raise_size(now);
        self.actions.events(conn.size_report(at));
    }

    /// Gives up a path that passes no packet long enough for data, if there is another path.
    fn leave_small_path(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let event = conn.path_shrank(at, (DATAGRAM_FLOOR, 0), PathReason::Size);
        self.actions.event(event);
        self.path_down(now, conn, at, PathReason::Size);
    }
}

impl Builder<'_, '_> {
    /// Pads the probe of a path that is down, so that the path comes up only if it passes long
    /// packets.
    pub(crate) fn fill_probe(&mut self) {
        if self.frames.contains(&FrameRef::Ping { padded: false }) {
            let len = (self.writer.room().saturating_sub(8) / 8 * 8) as u16;
            self.control(&Frame::Pad { len, head: 0 }, None);
        }
    }
}

impl Conn {
    /// True if the peer is heard, but for `timeout_ns` no packet to it was acknowledged, or none
    /// long enough for data.
    pub(crate) fn delivers_nothing(&mut self, now: u64, timeout_ns: u64) -> bool {
        if !self.owes() {
            self.life.unanswered_since = None;
            return false;
        }
        let long = |since: u64| now.saturating_sub(since) >= timeout_ns;
        let unanswered = long(*self.life.unanswered_since.get_or_insert(now));
        let mut usable = self.paths.iter().filter(|p| p.usable()).peekable();
        let full = |p: &Path| p.mtu.no_data_since().is_some_and(long);
        unanswered || (usable.peek().is_some() && usable.all(full))
    }

    /// Time in ns for which nothing sent to the peer was acknowledged, or nothing long enough for
    /// data.
    pub(crate) fn unanswered_ns(&self, now: u64) -> u64 {
        let small = self.paths.iter().filter_map(|p| p.mtu.no_data_since());
        let since = small.chain(self.life.unanswered_since).min();
        since.map_or(0, |since| now.saturating_sub(since))
    }
}
