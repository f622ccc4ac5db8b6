//! Outgoing packets: what leaves next, and on which path. Small frames (control, short messages,
//! retransmissions) share one packet; bulk fragments fill packets of equal length, so that the
//! engine can hand the kernel a whole batch.

use crate::base::config::RailPolicy;
use crate::base::types::{Batch, PathState, Spans, Transmit};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::mtu_search::DATAGRAM_FLOOR;
use crate::state::path::Path;
use crate::state::resends::ANYWHERE;
use crate::state::sent_packets::FrameRef;
use alloc::boxed::Box;
use marline_wire::{Frame, Header};

impl Node {
    /// Builds the next packet: writes its head into `out` and lists its payloads in `spans`. With
    /// `follow`, builds only a packet that continues that batch. `None`: nothing to send now.
    pub fn poll_transmit(
        &mut self,
        now_ns: u64,
        out: &mut [u8],
        spans: &mut Spans,
        follow: Option<&Batch>,
    ) -> Option<Transmit> {
        let packet = self.build(now_ns, out, spans, follow);
        self.sent(now_ns);
        packet
    }

    /// Like [`Node::poll_transmit`], for a caller that sends the packet at once and then calls
    /// [`Node::sent`] before any other function: bookkeeping is deferred until after the send.
    pub fn build(
        &mut self,
        now_ns: u64,
        out: &mut [u8],
        spans: &mut Spans,
        follow: Option<&Batch>,
    ) -> Option<Transmit> {
        spans.clear();
        self.outgoing.set_time(now_ns);
        if let Some(batch) = follow {
            let mut conn = self.take(batch.peer)?;
            let path = &conn.paths[batch.path];
            let limit = batch.segment.min(path.datagram_max());
            if path.validation.is_blocked() {
                self.put(conn);
                return None;
            }
            let packet = self.bulk_packet(now_ns, &mut conn, batch.path, Some(limit), out, spans);
            let packet = packet
                .or_else(|| self.small_packet(now_ns, &mut conn, batch.path, limit, out, spans));
            self.keep_built(now_ns, &mut conn);
            self.put(conn);
            return packet;
        }
        while let Some(&peer) = self.run_queue.ready.front() {
            let Some(mut conn) = self.take(peer) else {
                self.run_queue.ready.pop_front();
                continue;
            };
            let packet = self.any_packet(now_ns, &mut conn, out, spans);
            self.run_queue.ready.pop_front();
            conn.listed.ready = false;
            if packet.is_none() {
                self.outgoing.begin_waits(&conn.tx.queue);
            }
            if packet.is_none()
                && self.local.full != 0
                && !core::mem::replace(&mut conn.listed.stalled, true)
            {
                self.run_queue.stalled.push(peer);
            }
            if self.pending.unrecorded.is_none() {
                self.left(now_ns, conn, packet.is_some());
            } else {
                self.put(conn);
            }
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    fn any_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        if conn.session.dead {
            return self.refusal_packet(now, conn, out, spans);
        }
        if conn.bye.due > 0 {
            return self.bye_packet(now, conn, out, spans);
        }
        if let Some(at) = conn
            .paths
            .iter()
            .position(|p| p.sends_size_probe(self.local.full))
        {
            return self.padded_packet(now, conn, at, out, spans);
        }
        let standby = self.cfg.policy == RailPolicy::Standby;
        let avoid = conn.tx.resend.front().map(|r| r.avoid);
        let avoid = avoid.filter(|&code| code != ANYWHERE);
        let full = self.local.full;
        let small = conn.small_path(avoid, standby, full);
        let delay = self.cfg.ack_delay_ns;
        let paths = &conn.paths;
        let special = |p: &Path| {
            let due = p.healthy() && p.acks.is_due(now, delay);
            let ack = p.acks.is_urgent() && !(p.left_by_acks() && paths.iter().any(Path::healthy));
            let asks = ack || p.probing.is_requested() || due || p.acks.echoes();
            asks && !p.rail_down() && p.has_room(full)
        };
        if let Some(at) = paths.iter().position(special) {
            let path = &conn.paths[at];
            if path.asks_alone(conn.is_unreached()) {
                let limit = path.datagram_max().min(DATAGRAM_FLOOR);
                let probe = self.probe_packet(now, conn, at, limit, out, spans);
                // The acks in this short packet may get lost: a retransmission should repeat them.
                // (When reachability is lost, the peer's own probes request acks on every path.)
                if !conn.tx.resend.is_empty() && !conn.is_unreached() {
                    conn.paths[at].acks.renew();
                }
                return probe;
            }
            let limit = path.datagram_max();
            let (cfg, local) = (&self.cfg, &self.local);
            if self.outgoing.acks_piggyback(cfg, local, conn, at, true) {
                return self.fragment_packet(now, conn, at, out, spans);
            }
            if Some(at) == small {
                return self.small_packet(now, conn, at, limit, out, spans);
            }
            return self.probe_packet(now, conn, at, limit, out, spans);
        }
        let small = small?;
        let limit = conn.paths[small].datagram_max();
        let gathers = conn.has_small() || conn.due_ack(now, self.cfg.ack_delay_ns);
        let (cfg, local) = (&self.cfg, &self.local);
        if gathers && !(self.outgoing).acks_piggyback(cfg, local, conn, small, false) {
            let packet = self.small_packet(now, conn, small, limit, out, spans);
            if packet.is_some() {
                return packet;
            }
        }
        let at = self.outgoing.bulk_path(&self.cfg, &self.local, conn)?;
        self.fragment_packet(now, conn, at, out, spans)
    }

    /// Builds a packet of all small frames that fit, on path `at`.
    fn small_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        limit: usize,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let mut b = self.begin(conn, limit, out, spans);
        let hello_only = b.frames.len();
        b.add_acks(&mut self.context(), now, conn, at);
        self.add_challenge(conn, at, &mut b);
        b.add_ping(conn, at);
        // A path that is down takes only retransmissions that leave on two paths.
        let down = conn.paths[at].state() == PathState::Down;
        let spare = down && conn.paths.iter().any(|p| p.usable());
        if !spare {
            self.add_control(now, conn, &mut b);
        }
        let room = conn.paths[at].window_has_room();
        // A retransmission by the timer ignores the window: all packets that fill it may be lost.
        if room || conn.tx.resend.hedged() {
            self.outgoing.add_resends(conn, &mut b, spare);
        }
        if room && !spare {
            let (outgoing, mut ctx) = self.outgoing();
            outgoing.add_heads(&mut ctx, conn, at, &mut b);
        }
        let nothing = b.frames.len() == hello_only && b.acks == 0;
        let nothing =
            nothing && (conn.tx.resend.is_empty() || !crate::tx::bulk::lone_hello(conn, at));
        self.finish(now, conn, at, b, nothing, false)
    }

    /// Builds a packet of acks and a probe on a path other than the one for small packets.
    fn probe_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        limit: usize,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let mut b = self.begin(conn, limit, out, spans);
        b.add_acks(&mut self.context(), now, conn, at);
        let nothing = b.is_empty();
        self.add_challenge(conn, at, &mut b);
        b.add_ping(conn, at);
        let path = &conn.paths[at];
        if path.state() == PathState::Down && (!path.health.is_isolated() || conn.is_unreached()) {
            b.fill_probe();
        }
        let nothing = nothing && b.frames.is_empty();
        self.finish(now, conn, at, b, nothing, false)
    }

    /// Builds a size probe (path MTU): PING padded to the probed size.
    fn padded_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let size = conn.paths[at].mtu.take_probe();
        if size == 0 {
            return self.any_packet(now, conn, out, spans);
        }
        let mut b = self.begin(conn, size, out, spans);
        b.control(&Frame::Ping, Some(FrameRef::Ping { padded: true }));
        let len = (b.writer.room().saturating_sub(8) / 8 * 8) as u16;
        b.control(&Frame::Pad { len, head: 0 }, None);
        b.flags |= Header::FLAG_ACK_NOW;
        let number = conn.paths[at].ring.next_number();
        conn.paths[at].mtu.on_probe_sent(number);
        self.finish(now, conn, at, b, false, false)
    }
}
