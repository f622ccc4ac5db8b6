//! Loopback: messages of an endpoint to itself. They are matched like all messages but need no
//! packets, rail or sums: the owner copies once from the memory of the send to that of the receive.
//! Until a receive matches, the message stays in its sender's memory.

use crate::base::config::MESSAGE_OVERHEAD;
use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::transfer::{new_inbound, InboundState};
use alloc::boxed::Box;
use marline_wire::{MsgHead, FLAG_PART};

impl Node {
    /// Returns whether this peer is the endpoint itself.
    pub fn is_loopback(&self, peer: PeerId) -> bool {
        self.peer_address(peer)
            .is_some_and(|a| a.id == self.local.id)
    }

    /// Returns whether the peer is this endpoint, and unmatched loopback messages fill the bound on
    /// unexpected memory.
    pub fn loopback_full(&self, peer: PeerId) -> bool {
        let own = self.conn(peer).is_some_and(|c| c.session.own);
        own && self.stats.unexpected_bytes + MESSAGE_OVERHEAD > self.cfg.unexpected_bytes
    }

    /// Posts the send `handle` with this head as a loopback message.
    pub(crate) fn send_loopback(&mut self, conn: Box<Conn>, handle: u32, head: MsgHead) {
        let peer = conn.peer;
        self.put(conn);
        let number = head.number as u64;
        let mut inbound = new_inbound(peer, number, head.total, InboundState::Unexpected);
        inbound.own = Some(handle);
        inbound.head = Some(head);
        inbound.charged = MESSAGE_OVERHEAD;
        self.stats.charge(MESSAGE_OVERHEAD);
        let key = self.ops.inbounds.insert(inbound);
        self.match_head(peer, &head, key, 0);
    }

    /// Copies a loopback message that was bound to a receive (or drops a discarded one), and ends
    /// both operations.
    pub(crate) fn deliver_loopback(&mut self, key: Key) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let Some(send) = inbound.own else { return };
        if let InboundState::Bound {
            handle,
            base,
            capacity,
        } = inbound.state
        {
            self.events.push_back(Event::Copy {
                send,
                recv: handle,
                offset: base,
                len: inbound.total.min(capacity),
            });
        }
        self.finish_if_complete(key);
        self.events.push_back(Event::SendDone {
            handle: send,
            ok: true,
        });
    }

    /// Asks the owner for the memory of a read of the endpoint's own memory.
    pub(crate) fn ask_loopback(
        &mut self,
        peer: PeerId,
        number: u32,
        (key, addr, len): (u64, u64, u64),
        flags: u8,
    ) {
        self.events.push_back(Event::ReadAsked {
            peer,
            number,
            key,
            addr,
            len,
            upto: len,
            part: flags & FLAG_PART != 0,
        });
    }

    /// Serves a read of the endpoint's own memory from `handle`'s memory.
    pub(crate) fn serve_loopback(&mut self, handle: u32, conn: Box<Conn>, number: u32) {
        let asked = conn.rx.pending_reads.get(&number).copied();
        self.put(conn);
        let Some(inbound) = asked.and_then(|key| self.ops.inbounds.get_mut(key)) else {
            return;
        };
        inbound.own = Some(handle);
        asked.into_iter().for_each(|key| self.deliver_loopback(key));
    }
}
