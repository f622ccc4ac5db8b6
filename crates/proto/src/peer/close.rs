//! Closing: BYE acknowledges all packets that arrived, and is repeated until acknowledged. (Without
//! acks it is sent three times on each rail.) BYE also has the number of messages that arrived:
//! after a requeue a sender no longer knows which messages the first packet had, so an ack of that
//! packet alone would leave them undelivered.

use crate::base::types::{PeerId, Spans, Transmit};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::sent_packets::FrameRef;
use alloc::boxed::Box;
use marline_wire::{Frame, Header};

impl Node {
    /// Starts closing: every peer gets BYE with the final ack state, repeated until it acknowledges
    /// one. Call `drained` first.
    pub fn say_bye(&mut self) {
        self.take_deferred();
        self.local.closing = true;
        for index in 0..self.directory.peers.len() {
            let Some(mut conn) = self.take(PeerId(index as u32)) else {
                continue;
            };
            if conn.session.epoch.is_some() && !conn.session.is_over() {
                // Without acks nothing triggers a retransmission: send each BYE three times.
                let times = if self.cfg.reliable { 1 } else { 3 };
                conn.bye.due = times * conn.paths.len() as u16;
                self.run_queue.mark_ready(&mut conn);
            }
            self.put(conn);
        }
    }

    /// Returns whether every live peer acknowledged the BYE or sent its own. Until then a peer may
    /// still need to be told that its messages were delivered.
    pub fn all_acked_bye(&self) -> bool {
        let waits = |conn: &Conn| {
            let waits = conn.session.epoch.is_some() && !conn.session.is_over();
            waits && !conn.bye.heard && !conn.is_unvalidated()
        };
        !self.cfg.reliable
            || !self
                .directory
                .peers
                .iter()
                .filter_map(|p| p.conn.as_deref())
                .any(waits)
    }

    /// Builds a BYE packet.
    pub(crate) fn bye_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        // Each BYE takes the next path in turn, among paths whose rail works.
        let byes = conn.bye.said.wrapping_add(1).max(1);
        let count = conn.paths.len();
        let mut turns = (0..count).map(|i| (byes as usize + i) % count);
        let free = |i: &usize| conn.paths[*i].link.up && conn.paths[*i].has_room(self.local.full);
        let works = |i: &usize| !conn.paths[*i].rail_down() && free(i);
        let none = conn.paths.iter().all(|p| p.rail_down());
        let at = turns.find(works).or(Some(0).filter(|i| none && free(i)))?;
        conn.bye.due -= 1;
        conn.bye.said = byes;
        let limit = conn.paths[at].datagram_max();
        for path in &mut conn.paths {
            path.acks.renew_now(now);
        }
        let mut b = self.begin(conn, limit, out, spans);
        b.add_acks(&mut self.context(), now, conn, at);
        let arrived = self.incoming.arrived(conn);
        b.control(&Frame::Bye { arrived }, Some(FrameRef::Bye));
        b.flags |= Header::FLAG_ACK_NOW;
        self.finish(now, conn, at, b, false, false)
    }

    /// Handles a peer's BYE: all local messages below `arrived` have arrived there. The peer
    /// drained its sends first; native packets that BYE overtook are lost.
    pub(crate) fn on_bye(&mut self, now: u64, peer: PeerId, arrived: u32) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        if conn.session.closed {
            return;
        }
        conn.session.closed = true;
        self.directory.departs(peer, now);
        self.end_peer(now, peer, Some(arrived));
    }
}
