//! Remote writes (`fi_write`, the puts of MPI): messages that name their place. They take their
//! turn among the messages of their sender, but no receive matches them: the owner is asked for the
//! memory that the head's key and address stand for. All else (grants, fragments, writes past the
//! packets, acks) is as for any rendezvous message. Short ones wait for their grant, too: once
//! their packet were acknowledged nobody could tell the sender that the key was wrong.

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
        // Nothing to write, whatever is there.
        let gone = self.peer_gone(peer);
        if !gone {
            self.events.push_back(Event::SendDone { handle, ok: true });
        }
        !gone
    }

    /// The peer refused a remote write of ours.
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
    /// The remote write that is next in its order: sets it aside and asks where it goes.
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

    /// Lets a peer write into the memory of `handle`, which has room for all of it; its end is a
    /// [`Event::RecvDone`] or, if the peer dies, a [`Event::RecvFailed`]. `false`: it is gone.
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

    /// Refuses a remote write, be it accepted or not: nothing of it lands once the events are
    /// handled that this brings, and the operation it was accepted for has none of its own any
    /// more. Only when its writer has heard of it is it over: what arrived until then, and was
    /// acknowledged, would count as written.
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
        // Without acks nobody will say so.
        if !self.cfg.reliable || self.cfg.errs(Mutation::ForgetRefusal) {
            self.refusal_heard(peer, number);
        }
        if counted > 0 {
            self.pump_grants(now_ns);
        }
    }

    /// The writer knows that its remote write was refused.
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
        self.return_credit(peer, credit);
    }
}

impl Inbound {
    /// It is a remote write.
    pub(crate) fn is_put(&self) -> bool {
        self.head.is_some_and(|head| head.flags & FLAG_PUT != 0)
    }

    /// Why what was not granted is not taken.
    pub(crate) fn no_place(&self) -> DropReason {
        match self.state {
            InboundState::Refused => DropReason::NoMemory,
            _ => DropReason::Nonsense,
        }
    }
}
