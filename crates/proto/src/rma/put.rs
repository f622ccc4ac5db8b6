//! Remote writes (`fi_write`, MPI's puts): messages that carry the address of their target. They
//! are ordered among the messages of their sender, but match no receive: the owner maps the key and
//! address in their head to memory. Grants, fragments and acks work as for any rendezvous message.
//! Short remote writes wait for a grant too, because after their packet's ack a wrong key could not
//! be reported any more.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{Claim, DropReason, Event, PeerId};
use crate::node::Node;
use crate::state::matching::Found;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState};
use core::mem::take;
use marline_wire::{MsgHead, FLAG_DELIVERY, FLAG_PUT, FLAG_REFUSED};

/// The writer.
impl Node {
    /// Posts a remote write of `len` bytes of `handle` to the memory that `key` and `addr` name at
    /// `peer`; `flags`: see [`MsgHead`]. `false`: the peer is gone (no event follows).
    pub fn post_put(
        &mut self,
        handle: u32,
        peer: PeerId,
        (key, addr, len): (u64, u64, u64),
        flags: u8,
    ) -> bool {
        let head = MsgHead {
            number: 0,
            flags: FLAG_PUT | FLAG_DELIVERY | flags,
            tag: key,
            data: addr,
            total: len,
        };
        if len > 0 {
            return self.post_message(handle, peer, head, true);
        }
        // A write without bytes succeeds without asking the peer.
        let gone = self.peer_gone(peer);
        if !gone {
            self.events.push_back(Event::SendDone { handle, ok: true });
        }
        !gone
    }

    /// Handles the peer's refusal of a local remote write.
    pub(crate) fn put_refused(&mut self, peer: PeerId, key: Key) {
        let is_put = |head: &MsgHead| head.flags & FLAG_PUT != 0;
        if !self
            .ops
            .sends
            .get(key)
            .is_some_and(|send| is_put(&send.head))
        {
            return;
        }
        let Some(send) = self.ops.sends.remove(key) else {
            return;
        };
        if let Some(conn) = self.conn_mut(peer) {
            conn.tx.rendezvous.remove(&send.head.number);
        }
        let handle = send.handle;
        self.events
            .push_back(match self.cfg.errs(Mutation::HideRefusal) {
                true => Event::SendDone { handle, ok: true },
                false => Event::PutRefused { handle },
            });
    }
}

/// The owner of the memory.
impl Node {
    /// Sets aside the remote write that is next in order, and asks the owner for its target memory.
    pub(crate) fn ask_place(&mut self, peer: PeerId, head: &MsgHead, key: Key, now: u64) {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        inbound.state = InboundState::Claimed;
        inbound.last_data_ns = now;
        self.events.push_back(Event::PutAsked {
            peer,
            claim: Claim(key),
            key: head.tag,
            addr: head.data,
            len: head.total,
        });
    }

    /// Accepts a remote write into the memory of `handle`, which must have room for all of it. It
    /// ends with [`Event::RecvDone`] or, if the peer dies, [`Event::RecvFailed`]. `false`: the
    /// write is gone.
    pub fn accept_put(&mut self, claim: Claim, handle: u32) -> bool {
        let Some(inbound) = self.ops.inbounds.get(claim.0) else {
            return false;
        };
        let found = Found {
            handle,
            base: 0,
            capacity: inbound.total,
            directed: false,
            stays: false,
            ignore: 0,
        };
        let now = inbound.last_data_ns;
        self.bind(claim.0, &found, now);
        true
    }

    /// Refuses a remote write, even an accepted one. After the resulting events are handled none of
    /// its bytes land, and the operation that it was accepted for gets no event. The refusal is
    /// stored until its writer has acknowledged it: otherwise bytes that arrive and are
    /// acknowledged meanwhile would count as written.
    pub fn refuse_put(&mut self, claim: Claim, now_ns: u64) {
        let Some(inbound) = self.ops.inbounds.get_mut(claim.0) else {
            return;
        };
        let (peer, number, own) = (inbound.peer, inbound.number as u32, inbound.own);
        inbound.state = InboundState::Refused;
        (inbound.wanted, inbound.granted) = (0, 0);
        let (counted, keys) = (take(&mut inbound.counted), take(&mut inbound.keys));
        self.grants.settle(counted);
        self.end_keys(claim.0, &keys);
        if let Some(handle) = own {
            self.drop_inbound(claim.0);
            return self.events.push_back(Event::PutRefused { handle });
        }
        if let Some(conn) = self.conn_mut(peer) {
            let flags = FLAG_REFUSED;
            conn.tx
                .control
                .push_back(FrameRef::EmptyGrant { number, flags });
            self.wake(peer);
        }
        // Without acks the refusal is never acknowledged.
        if !self.cfg.reliable || self.cfg.errs(Mutation::ForgetRefusal) {
            self.refusal_heard(peer, number);
        }
        if counted > 0 {
            self.pump_grants(now_ns);
        }
    }

    /// Handles the writer's ack of a refusal.
    pub(crate) fn refusal_heard(&mut self, peer: PeerId, number: u32) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let number = conn.rx.expand(number);
        let Some(&key) = conn.rx.inbound.get(&number) else {
            return;
        };
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        if inbound.state != InboundState::Refused {
            return;
        }
        let credit = inbound.credit;
        if let Some(conn) = self.conn_mut(peer) {
            conn.rx.inbound.remove(&number);
        }
        self.drop_inbound(key);
        self.context().return_credit(peer, credit);
    }
}

impl Inbound {
    /// Returns whether the message is a remote write.
    pub(crate) fn is_put(&self) -> bool {
        self.head.is_some_and(|head| head.flags & FLAG_PUT != 0)
    }

    /// The reason to drop a fragment that is not granted.
    pub(crate) fn no_place(&self) -> DropReason {
        match self.state {
            InboundState::Refused => DropReason::NoMemory,
            _ => DropReason::Invalid,
        }
    }
}
