//! Peers that are gone are forgotten, so that a server whose clients come and go does not grow. It
//! goes in two steps. When nothing of it is left here, the conversation goes, most of what a peer
//! takes; its owner may keep the counters before. The name stays a while longer: a packet that was
//! late would else be a first contact, and its messages arrive a second time. It also stays as long
//! as the owner has a name of its own for the peer (an entry of an address vector): operations that
//! name it fail at once.

use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::directory::{Directory, Peer};
use core::cmp::Reverse;
use marline_wire::Address;

/// From a peer's end to that of its conversation: whoever closes says BYE for 2 s, and wants an
/// answer each time.
const PARTING_NS: u64 = 5_000_000_000;
/// From then to the end of its name: a packet is at most 2 minutes under way (RFC 9293), and may be
/// answered by one that is.
const NAME_KEPT_NS: u64 = 240_000_000_000;

/// So often a peer for which the owner has no name is asked whether it lives, when it says nothing
/// else: nobody waits for it, so nobody would notice that it was killed.
const STRANGER_NS: u64 = 60_000_000_000;

impl Directory {
    /// The peer with this address, known or new, without a name that the owner has for it.
    pub(crate) fn know(&mut self, address: &Address) -> PeerId {
        if let Some(&index) = self.by_id.get(&address.id) {
            return PeerId(index);
        }
        let peer = Peer {
            address: *address,
            named: false,
            gone: false,
            look_at_ns: 0,
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
        PeerId(index)
    }

    /// The peer in slot `index` is looked at again then.
    fn look_again(&mut self, index: u32, at: u64) {
        let Some(entry) = self.peers.get_mut(index as usize) else {
            return;
        };
        entry.look_at_ns = at;
        self.departed.waiting.push(Reverse((at, index)));
        self.reclaim_at = self.reclaim_at.min(at);
    }

    /// A peer was heard for which the owner has no name, perhaps.
    pub(crate) fn met(&mut self, peer: PeerId, now: u64) {
        let departs = |c: &Conn| c.session.is_over();
        if !self.conn(peer).is_some_and(departs) {
            self.look_again(peer.0, now + STRANGER_NS);
        }
    }

    /// The peer is dead, or closed.
    pub(crate) fn departs(&mut self, peer: PeerId, now: u64) {
        self.look_again(peer.0, now + PARTING_NS);
    }

    /// The slot is for another peer.
    fn free_slot(&mut self, index: u32) {
        let Some(entry) = self.peers.get_mut(index as usize) else {
            return;
        };
        let id = core::mem::replace(&mut entry.address, Address::NOBODY).id;
        (entry.named, entry.gone, entry.look_at_ns) = (false, false, 0);
        if id != Address::NOBODY.id {
            self.by_id.remove(&id);
            self.departed.free.push(index);
        }
    }
}

impl Node {
    /// The owner has a name for the peer, which is to stay known.
    pub fn name(&mut self, peer: PeerId) {
        if let Some(entry) = self.directory.peers.get_mut(peer.0 as usize) {
            entry.named = true;
        }
    }

    /// The owner has no name for the peer any more.
    pub fn unname(&mut self, peer: PeerId) {
        let Some(entry) = self.directory.peers.get_mut(peer.0 as usize) else {
            return;
        };
        entry.named = false;
        if entry.gone {
            self.directory
                .look_again(peer.0, self.absences.last_poll_ns + NAME_KEPT_NS);
        } else if entry.conn.is_none() {
            self.directory.free_slot(peer.0); // never spoken to
        } else {
            self.directory.met(peer, self.absences.last_poll_ns);
        }
    }

    /// Looks at the peers whose time has come.
    pub(crate) fn reclaim_departed(&mut self, now: u64) {
        while self.directory.departed.at() <= now {
            let Some(Reverse((at, index))) = self.directory.departed.waiting.pop() else {
                return;
            };
            let entry = self.directory.peers.get(index as usize);
            // A later time replaced this one, perhaps that of another peer in this slot.
            let Some(entry) = entry.filter(|e| e.look_at_ns == at) else {
                continue;
            };
            if entry.gone && !entry.named {
                self.directory.free_slot(index);
            } else if entry.conn.is_some() && self.is_left(PeerId(index)) {
                let peer = PeerId(index);
                self.events.push_back(Event::PeerLeft { peer });
            } else if self.peer_gone(PeerId(index)) && entry.conn.is_some() {
                self.directory.look_again(index, now + PARTING_NS);
            } else if !entry.named && self.ask_stranger(now, PeerId(index)) {
                self.directory.look_again(index, now + STRANGER_NS);
            }
        }
    }

    /// Returns whether nothing is left to do with a peer, nor of what it sent.
    fn is_left(&self, peer: PeerId) -> bool {
        let ended = |c: &Conn| c.session.is_over() && !c.listed.ready;
        let noted = self.pending.unkept.is_none() && self.pending.deferred_ack.is_none();
        noted
            && self.conn(peer).is_some_and(ended)
            && !self.ops.inbounds.iter().any(|(_, i)| i.peer == peer)
            && !self.ops.sends.iter().any(|(_, s)| s.peer == peer)
    }

    /// Forgets the conversation with a peer that left ([`Event::PeerLeft`]). Operations that name
    /// it fail, packets that it sent are refused.
    pub fn forget(&mut self, peer: PeerId) {
        if !self.is_left(peer) {
            return self.directory.departs(peer, self.absences.last_poll_ns);
        }
        let entry = self.directory.peers.get_mut(peer.0 as usize);
        let conn = entry.and_then(|entry| {
            entry.gone = true;
            entry.conn.take()
        });
        if let Some(conn) = conn {
            self.links.leave(&conn);
        }
        self.directory
            .look_again(peer.0, self.absences.last_poll_ns + NAME_KEPT_NS);
    }
}
