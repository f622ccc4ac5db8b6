//! Challenges of addresses and their responses, and strangers that never prove an address.

use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::sent_packets::FrameRef;
use marline_wire::Address;

impl Node {
    /// Endpoint id of a peer.
    pub(crate) fn peer_id(&self, peer: PeerId) -> u64 {
        self.peer_address(peer).map_or(0, |address| address.id)
    }

    /// Answers a challenge. Responses that wait are bounded by the paths, each of which has one
    /// challenge at a time.
    pub(crate) fn on_challenge(&mut self, peer: PeerId, data: u64) {
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        let response = FrameRef::PathResponse(data);
        let responses = conn.tx.control.iter();
        let waiting = responses.filter(|frame| matches!(frame, FrameRef::PathResponse(_)));
        if conn.tx.control.contains(&response) || waiting.count() >= conn.paths.len() {
            return;
        }
        conn.tx.control.push_back(response);
        (conn.session.challenged, conn.session.validates) = (true, true);
        self.run_queue.mark_ready(conn);
    }

    /// Handles a response: the peer receives at the address to which the challenge was sent.
    pub(crate) fn on_response(&mut self, now: u64, peer: PeerId, data: u64) {
        let id = self.peer_id(peer);
        let reliable = self.cfg.reliable;
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        if conn.validate(&self.local, id, data) {
            conn.ask_sizes(reliable);
            self.run_queue.mark_ready(conn);
            self.context().touch(peer, now);
        }
    }

    /// Makes room for an address that is inserted: a stranger that has its id and another token is
    /// another endpoint, and is forgotten.
    pub(crate) fn displace_stranger(&mut self, address: &Address) {
        let Some(peer) = self.peer_named(address.id) else {
            return;
        };
        let known = self.peer_address(peer);
        if known.is_some_and(|known| known.token != address.token) && !self.directory.is_named(peer)
        {
            self.forget_unvalidated(self.descheduled.last_poll_ns, peer);
            self.directory.by_id.remove(&address.id);
        }
    }

    /// Forgets a stranger that has proved no address, and of which nothing has taken effect.
    pub(crate) fn forget_unvalidated(&mut self, now: u64, peer: PeerId) {
        self.stats.strangers_forgotten += 1;
        if let Some(conn) = self.conn_mut(peer) {
            conn.session.dead = true;
        }
        self.end_peer(now, peer, None);
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.forget_packets(&self.cfg);
        }
        self.events.push_back(Event::PeerLeft { peer });
    }
}
