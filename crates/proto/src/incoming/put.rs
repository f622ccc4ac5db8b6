//! Remote writes of peers (`fi_write`, MPI's puts): they are ordered among the messages of their
//! sender, but match no receive: the owner maps the key and address in their head to memory.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{Claim, Event, PeerId};
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::matching::Found;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState};
use core::mem::take;
use marline_wire::{MsgHead, FLAG_REFUSED};

impl Incoming {
    /// Sets aside the remote write that is next in order, and asks the owner for its target memory.
    pub(crate) fn ask_place(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        head: &MsgHead,
        key: Key,
        now: u64,
    ) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        inbound.state = InboundState::Claimed;
        inbound.last_data_ns = now;
        ctx.events.push_back(Event::PutAsked {
            peer,
            claim: Claim(key),
            key: head.tag,
            addr: head.data,
            len: head.total,
        });
    }

    /// Accepts a remote write into the memory of `handle`, which must have room for all of it. The
    /// write ends with [`Event::RecvDone`] or, if the peer dies, [`Event::RecvFailed`]. `false`:
    /// the write is gone.
    pub fn accept_put(&mut self, ctx: &mut Context<'_>, claim: Claim, handle: u32) -> bool {
        let Some(inbound) = self.inbounds.get(claim.0) else {
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
        self.bind(ctx, claim.0, &found, now);
        true
    }

    /// Refuses a remote write, even an accepted one. After the resulting events are handled none of
    /// its bytes land, and the operation that it was accepted for gets no event. The refusal is
    /// stored until its writer has acknowledged it: otherwise bytes that arrive and are
    /// acknowledged meanwhile would count as written.
    pub fn refuse_put(&mut self, ctx: &mut Context<'_>, claim: Claim, now_ns: u64) {
        let Some(inbound) = self.inbounds.get_mut(claim.0) else {
            return;
        };
        let (peer, number, own) = (inbound.peer, inbound.number as u32, inbound.own);
        inbound.state = InboundState::Refused;
        (inbound.wanted, inbound.granted) = (0, 0);
        let (counted, keys) = (take(&mut inbound.counted), take(&mut inbound.keys));
        self.grants.settle(counted);
        keys.end(ctx, claim.0);
        if let Some(handle) = own {
            self.drop_inbound(ctx, claim.0);
            return ctx.events.push_back(Event::PutRefused { handle });
        }
        if take(&mut inbound.bounced) {
            let inbound = claim.0.name();
            ctx.events.push_back(Event::BounceFree { inbound });
        }
        answer(ctx, peer, (number, FLAG_REFUSED));
        // No ack of the refusal will come: it is not stored.
        let gone = ctx.conn(peer).is_none_or(|conn| conn.session.is_over());
        if gone || !ctx.cfg.reliable || ctx.cfg.errs(Mutation::ForgetRefusal) {
            self.end_refused(ctx, claim.0);
        }
        if counted > 0 {
            self.pump_grants(ctx, now_ns);
        }
    }

    /// Handles the writer's ack of a refusal.
    pub(crate) fn refusal_heard(&mut self, ctx: &mut Context<'_>, peer: PeerId, number: u32) {
        let Some(conn) = ctx.conn(peer) else {
            return;
        };
        let number = conn.rx.expand(number);
        if let Some(&key) = conn.rx.inbound.get(&number) {
            self.end_refused(ctx, key);
        }
    }

    /// Forgets a refused remote write.
    fn end_refused(&mut self, ctx: &mut Context<'_>, key: Key) {
        let refused = |i: &&Inbound| i.state == InboundState::Refused;
        let Some(inbound) = self.inbounds.get(key).filter(refused) else {
            return;
        };
        let (peer, number, credit) = (inbound.peer, inbound.number, inbound.credit);
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.rx.inbound.remove(&number);
        }
        self.drop_inbound(ctx, key);
        ctx.return_credit(peer, credit);
    }
}

/// Answers a remote write with a grant of no bytes: its memory took it, or it was refused.
pub(crate) fn answer(ctx: &mut Context<'_>, peer: PeerId, (number, flags): (u32, u8)) {
    if let Some(conn) = ctx.conn_mut(peer) {
        conn.tx
            .control
            .push_back(FrameRef::EmptyGrant { number, flags });
        ctx.wake(peer);
    }
}
