//! Messages that are next in matching order: each is bound to a receive, stored as unexpected, or
//! passed to the owner (RPCs, remote writes).

use crate::base::slab::Key;
use crate::base::types::{Claim, Event, PeerId, RecvSpec};
use crate::incoming::grants::Grants;
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::matching::{Found, Posted, Waiting};
use crate::state::transfer::{is_rpc, InboundState};
use marline_wire::{MsgHead, BLOCK_BYTES, FLAG_PUT, FLAG_TAGGED};

/// A message found by a peek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Sender.
    pub peer: PeerId,
    /// Matching head, with the message's length.
    pub head: MsgHead,
}

impl Incoming {
    /// Gives the receive an unexpected message that it accepts; `false`: none matches.
    pub(crate) fn receive_unexpected(
        &mut self,
        ctx: &mut Context<'_>,
        spec: &RecvSpec,
        now_ns: u64,
    ) -> bool {
        let Some(waiting) = self.receives.find_unexpected(spec, true) else {
            return false;
        };
        let posted = self.receives.number(spec);
        self.receive_waiting(ctx, &waiting, &posted, now_ns);
        true
    }

    /// Gives a single receive an unexpected message that it accepts.
    pub(crate) fn receive_waiting(
        &mut self,
        ctx: &mut Context<'_>,
        waiting: &Waiting,
        posted: &Posted,
        now_ns: u64,
    ) {
        self.note_matched(ctx, waiting.inbound, posted, false);
        self.bind(ctx, waiting.inbound, &Found::whole(&posted.spec), now_ns);
    }

    /// Posts a multi-receive, after giving it all matching unexpected messages that fit.
    pub(crate) fn post_multi(&mut self, ctx: &mut Context<'_>, spec: &RecvSpec, now_ns: u64) {
        self.receives.post(spec);
        self.fill_multi(ctx, spec, now_ns);
    }

    /// Gives a posted multi-receive all matching unexpected messages that fit.
    pub(crate) fn fill_multi(&mut self, ctx: &mut Context<'_>, spec: &RecvSpec, now_ns: u64) {
        while let Some(waiting) = self.receives.find_unexpected(spec, false) {
            let Some(head) = self.inbounds.get(waiting.inbound).and_then(|i| i.head) else {
                break;
            };
            let Some((found, before)) = self.receives.arrive(waiting.peer, &head) else {
                break;
            };
            self.note_matched(ctx, waiting.inbound, &before, found.stays);
            self.receives.find_unexpected(spec, true);
            if let Some(conn) = ctx.conn_mut(waiting.peer) {
                conn.rx.watchers -= found.unwatches();
            }
            self.bind(ctx, waiting.inbound, &found, now_ns);
            if found.handle == spec.handle && !found.stays {
                break;
            }
        }
    }

    /// Binds the message that is next in order to a receive, or stores it as unexpected.
    pub(crate) fn match_head(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        head: &MsgHead,
        key: Key,
        now: u64,
    ) {
        if head.flags & FLAG_PUT != 0 {
            return self.ask_place(ctx, peer, head, key, now);
        }
        if is_rpc(head) {
            return self.take_rpc(ctx, peer, head, key);
        }
        if let Some((found, before)) = self.receives.arrive(peer, head) {
            self.note_matched(ctx, key, &before, found.stays);
            if let Some(conn) = ctx.conn_mut(peer) {
                conn.rx.watchers -= found.unwatches();
            }
            self.bind(ctx, key, &found, now);
        } else {
            self.receives.add_unexpected(peer, head, key);
            if let Some(inbound) = self.inbounds.get_mut(key) {
                inbound.state = InboundState::Unexpected;
            }
            self.finish_if_complete(ctx, key);
        }
    }

    /// Binds an unexpected (or just arrived) message to a receive.
    pub(crate) fn bind(&mut self, ctx: &mut Context<'_>, key: Key, found: &Found, now_ns: u64) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        let Found {
            handle,
            base,
            capacity,
            ..
        } = *found;
        inbound.state = InboundState::Bound {
            handle,
            base,
            capacity,
        };
        if inbound.own.is_some() {
            return self.deliver_loopback(ctx, key);
        }
        if inbound.rendezvous {
            // Whole blocks, so that fragments end at block boundaries; the excess bytes are cut off
            // when stored.
            inbound.wanted = inbound
                .total
                .min(capacity.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
            if !self.pull(ctx, key) {
                if ctx.local.writes {
                    self.want_keys(ctx, key);
                }
                self.grants.want(&mut self.inbounds, ctx, key, now_ns);
            }
        }
        self.order_completion(key, found.ignore);
        self.finish_if_complete(ctx, key);
    }

    /// Registers a bound tagged message for completion in order.
    fn order_completion(&mut self, key: Key, ignore: u64) {
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        let Some(head) = inbound.head.filter(|h| h.flags & FLAG_TAGGED != 0) else {
            return;
        };
        let (at, tag) = ((inbound.peer, inbound.number), (head.tag, ignore));
        if !inbound.complete() || self.completion_order.waits(at, tag) {
            self.completion_order.enter(at, tag, key);
        }
    }

    /// Looks for an unexpected message; with `claim` the message is set aside for `recv_claimed`.
    pub fn peek(&mut self, spec: &RecvSpec, claim: bool) -> Option<(Peeked, Option<Claim>)> {
        let waiting = self.receives.find_unexpected(spec, claim)?;
        let inbound = self.inbounds.get_mut(waiting.inbound)?;
        let head = inbound.head?;
        if claim {
            inbound.state = InboundState::Claimed;
        }
        let claimed = claim.then_some(Claim(waiting.inbound));
        Some((
            Peeked {
                peer: waiting.peer,
                head,
            },
            claimed,
        ))
    }

    /// Receives a claimed message into `handle`. `false`: its sender died and the message is gone.
    pub fn recv_claimed(
        &mut self,
        ctx: &mut Context<'_>,
        claim: Claim,
        spec: &RecvSpec,
        now_ns: u64,
    ) -> bool {
        let live = self.inbounds.get(claim.0).is_some();
        self.bind(ctx, claim.0, &Found::whole(spec), now_ns);
        live
    }

    /// Discards a claimed message and returns its description. `None`: its sender died and the
    /// message is gone.
    pub fn discard_claimed(&mut self, ctx: &mut Context<'_>, claim: Claim) -> Option<Peeked> {
        let inbound = self.inbounds.get_mut(claim.0)?;
        inbound.state = InboundState::Discard;
        let (peer, head) = (inbound.peer, inbound.head);
        if inbound.own.is_some() {
            self.deliver_loopback(ctx, claim.0);
        } else {
            if inbound.rendezvous {
                inbound.wanted = 0;
                Grants::announce(&self.inbounds, ctx, claim.0);
            }
            self.finish_if_complete(ctx, claim.0);
        }
        Some(Peeked { peer, head: head? })
    }

    /// Passes the complete RPC that is next in order to the owner, with its bounce buffer.
    pub(crate) fn take_rpc(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        head: &MsgHead,
        key: Key,
    ) {
        let Some(credit) = self.inbounds.get(key).map(|i| i.credit) else {
            return;
        };
        if let Some(conn) = ctx.conn_mut(peer) {
            let number = conn.rx.expand(head.number);
            conn.rx.inbound.remove(&number);
            conn.stats.messages_received += 1;
            conn.stats.bytes_received += head.total;
        }
        self.drop_inbound(ctx, key);
        ctx.return_credit(peer, credit);
        ctx.events.push_back(Event::RpcArrived {
            peer,
            head: *head,
            bounce: key.name(),
        });
    }
}
