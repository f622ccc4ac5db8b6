//! Forgets peers that are gone, in two steps, so that a server with changing clients does not grow.
//! When no work with the peer is left, its connection state is freed, which is most of its memory;
//! the owner may save the counters first. The address is kept longer: without it a late packet
//! would count as first contact, and its messages would arrive twice. The address also stays as
//! long as the owner has an address-vector entry for the peer, so that operations that name the
//! peer fail at once.

use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::admission::Standing;
use crate::state::conn::Conn;
use crate::state::directory::{Directory, Peer};
use core::cmp::Reverse;
use marline_wire::Address;

/// Time from a peer's end to the removal of its connection state: a closing peer repeats BYE for 2
/// s and needs an answer each time.
const DRAINING_NS: u64 = 5_000_000_000;
/// Time from the removal of the connection state to that of the address: a packet is in flight for
/// at most 2 minutes (RFC 9293), and its answer for as long again.
const NAME_KEPT_NS: u64 = 240_000_000_000;

/// Interval of probes to a silent peer without an address-vector entry: no operation names this
/// peer, so only these probes detect its death.
const STRANGER_NS: u64 = 60_000_000_000;

impl Directory {
    /// The peer with this address, known or new, without an owner's entry.
    pub(crate) fn know(&mut self, address: &Address) -> PeerId {
        if let Some(&index) = self.by_id.get(&address.id) {
            return PeerId(index);
        }
        let peer = Peer {
            address: *address,
            named: false,
            gone: false,
            look_at_ns: 0,
            charged: 0,
            conn: None,
        };
        let index = match self.departed.free.pop() {
            Some(index) => index,
            None => self.peers.len() as u32,
        };
        match self.peers.get_mut(index as usize) {
            Some(slot) => *slot = peer,
            None => self.peers.push(peer),
        }
        self.by_id.insert(address.id, index);
        self.admission.moves(Standing::Free, Standing::Stranger);
        PeerId(index)
    }

    /// Returns whether this id leads to the peer in slot `index`. It leads to another one where a
    /// stranger had the id of an endpoint that was inserted later.
    fn has_name(&self, index: u32, id: u64) -> bool {
        self.by_id.get(&id) == Some(&index)
    }

    /// Schedules the next check of the peer in slot `index`.
    fn look_again(&mut self, index: u32, at: u64) {
        let Some(entry) = self.peers.get_mut(index as usize) else {
            return;
        };
        entry.look_at_ns = at;
        self.departed.waiting.push(Reverse((at, index)));
        self.reclaim_at = self.reclaim_at.min(at);
    }

    /// Schedules a later check of a peer that was heard and that the owner may not have named.
    pub(crate) fn met(&mut self, peer: PeerId, now: u64) {
        let departs = |c: &Conn| c.session.is_over();
        if !self.conn(peer).is_some_and(departs) {
            self.look_again(peer.0, now + STRANGER_NS);
        }
    }

    /// Schedules the removal of a dead or closed peer.
    pub(crate) fn departs(&mut self, peer: PeerId, now: u64) {
        self.look_again(peer.0, now + DRAINING_NS);
    }

    /// Frees the slot for another peer.
    fn free_slot(&mut self, index: u32) {
        let freed = self.change(index, |entry| {
            (entry.named, entry.gone, entry.look_at_ns) = (false, false, 0);
            core::mem::replace(&mut entry.address, Address::NOBODY).id
        });
        if let Some(id) = freed.filter(|id| *id != Address::NOBODY.id) {
            if self.has_name(index, id) {
                self.by_id.remove(&id);
            }
            self.departed.free.push(index);
        }
    }
}

impl Node {
    /// Records that the owner has an entry for the peer, which therefore stays known.
    pub fn name(&mut self, peer: PeerId) {
        self.directory.change(peer.0, |entry| entry.named = true);
        let conn = self.directory.conn_mut(peer);
        if let Some(conn) = conn.filter(|conn| conn.is_of_stranger()) {
            conn.waive_validation();
            self.run_queue.mark_ready(conn);
        }
    }

    /// Records that the owner no longer has an entry for the peer.
    pub fn av_removed(&mut self, peer: PeerId) {
        self.directory.change(peer.0, |entry| entry.named = false);
        let Some(entry) = self.directory.peers.get(peer.0 as usize) else {
            return;
        };
        if entry.gone {
            self.directory
                .look_again(peer.0, self.descheduled.last_poll_ns + NAME_KEPT_NS);
        } else if entry.conn.is_none() {
            self.directory.free_slot(peer.0); // never contacted
        } else {
            self.directory.met(peer, self.descheduled.last_poll_ns);
        }
    }

    /// Checks the peers whose check is due, and frees those that are gone.
    pub(crate) fn reclaim_departed(&mut self, now: u64) {
        while self.directory.departed.at() <= now {
            let Some(Reverse((at, index))) = self.directory.departed.waiting.pop() else {
                return;
            };
            let entry = self.directory.peers.get(index as usize);
            // A later check has replaced this one, perhaps for another peer in this slot.
            let Some(entry) = entry.filter(|e| e.look_at_ns == at) else {
                continue;
            };
            if entry.gone && !entry.named {
                let id = entry.address.id;
                if self.cfg.key_mark != 0 && self.directory.has_name(index, id) {
                    self.directory.departed.former.insert(id);
                }
                self.directory.free_slot(index);
            } else if entry.conn.is_some() && self.is_left(PeerId(index)) {
                let peer = PeerId(index);
                self.events.push_back(Event::PeerLeft { peer });
            } else if self.peer_gone(PeerId(index)) && entry.conn.is_some() {
                self.directory.look_again(index, now + DRAINING_NS);
            } else if !entry.named && self.keepalive_unused(now, PeerId(index)) {
                self.directory.look_again(index, now + STRANGER_NS);
            }
        }
    }

    /// True if no work with the peer and none of its messages is left.
    fn is_left(&self, peer: PeerId) -> bool {
        let ended = |c: &Conn| c.session.is_over() && !c.listed.ready;
        let noted = self.pending.unrecorded.is_none() && self.pending.deferred_ack.is_none();
        noted
            && self.conn(peer).is_some_and(ended)
            && !self.incoming.has_of(peer)
            && !self.outgoing.iter().any(|s| s.peer == peer)
    }

    /// Frees the connection state of a peer after [`Event::PeerLeft`]. Operations that name the
    /// peer fail, and its packets are refused.
    pub fn forget(&mut self, peer: PeerId) {
        if !self.is_left(peer) {
            return self.directory.departs(peer, self.descheduled.last_poll_ns);
        }
        let conn = self.directory.change(peer.0, |entry| {
            entry.gone = true;
            entry.conn.take()
        });
        if let Some(conn) = conn.flatten() {
            self.links.leave(&conn);
            self.directory.hosts.forget(self.local.pairing, &conn);
            if conn.is_traceless() {
                return self.directory.free_slot(peer.0);
            }
        }
        self.directory
            .look_again(peer.0, self.descheduled.last_poll_ns + NAME_KEPT_NS);
    }
}
