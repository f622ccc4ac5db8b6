//! Accounting of stored bytes, and completion of messages.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::incoming::messages::Incoming;
use crate::incoming::put::answer;
use crate::state::context::Context;
use crate::state::transfer::InboundState;
use marline_wire::MsgHead;

impl Incoming {
    /// Records that blocks `start..start + n` (`len` bytes) of an inbound message are stored.
    pub(crate) fn commit(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        key: Key,
        start: u64,
        n: u64,
        len: u64,
    ) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        inbound.set.insert(start, n);
        inbound.last_data_ns = now;
        if inbound.is_rpc() {
            let peer = inbound.peer;
            return self.advance_matching(ctx, now, peer);
        }
        if inbound.rendezvous {
            let paid = inbound.counted.min(len);
            inbound.counted -= paid;
            self.grants.settle(paid);
            self.grants.want(&mut self.inbounds, ctx, key, now);
        }
        self.finish_if_complete(ctx, key);
    }

    /// Ends an inbound message if it is complete, and then complete messages that waited for it.
    pub(crate) fn finish_if_complete(&mut self, ctx: &mut Context<'_>, key: Key) {
        let peer = self.inbounds.get(key).map(|inbound| inbound.peer);
        self.end_inbound(ctx, key);
        if let Some(peer) = peer {
            self.finish_held(ctx, peer);
        }
    }

    /// Ends the held messages of a peer that may now be reported.
    pub(crate) fn finish_held(&mut self, ctx: &mut Context<'_>, peer: PeerId) {
        while let Some(key) = self.completion_order.next(peer) {
            self.end_inbound(ctx, key);
        }
    }

    fn end_inbound(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        let early = ctx.cfg.errs(Mutation::CompleteEarly) && inbound.set.count() > 0;
        if !inbound.complete() && !early {
            return;
        }
        let (peer, number, reply) = (inbound.peer, inbound.number, inbound.reply);
        let (state, bounced, total) = (inbound.state, inbound.bounced, inbound.total);
        let (credit, head) = (inbound.credit, inbound.head);
        // The answer to a remote write, or its ack, is still due.
        let asks = matches!(state, InboundState::Claimed | InboundState::Refused);
        if state == InboundState::Held || asks && inbound.is_put() {
            return;
        }
        let answered = inbound.is_answered();
        if let Some(conn) = ctx.conn_mut(peer) {
            if reply {
                conn.rx.pending_reads.remove(&(number as u32));
            } else {
                conn.rx.inbound.remove(&number);
            }
        }
        let bounce = bounced.then(|| key.name());
        match state {
            InboundState::Bound {
                handle,
                base,
                capacity,
            } => {
                let at = (peer, number);
                let completion_order = reply || ctx.cfg.errs(Mutation::ReportEarly);
                if !completion_order && self.completion_order.hold(at) {
                    return;
                }
                self.show_end(ctx, key, (handle, base));
                self.drop_inbound(ctx, key);
                if answered {
                    answer(ctx, peer, (number as u32, 0));
                }
                ctx.return_credit(peer, credit);
                if reply {
                    ctx.events.push_back(Event::ReadDone { handle, ok: true });
                } else if let Some(head) = head {
                    let len = total.min(capacity);
                    self.received(ctx, peer, head, (handle, base, len), bounce);
                }
            }
            InboundState::Discard => {
                self.drop_inbound(ctx, key);
                ctx.return_credit(peer, credit);
                if let Some(inbound) = bounce {
                    ctx.events.push_back(Event::BounceFree { inbound });
                }
            }
            // Complete on the network, but not matched yet.
            _ => {}
        }
    }

    /// Frees an inbound message and everything charged for it.
    pub(crate) fn drop_inbound(&mut self, ctx: &mut Context<'_>, key: Key) {
        if let Some(inbound) = self.inbounds.remove(key) {
            inbound.keys.end(ctx, key);
            if inbound.holds_end {
                ctx.events.push_back(Event::BounceFree {
                    inbound: key.name(),
                });
            }
            if !inbound.reply {
                self.completion_order.leave((inbound.peer, inbound.number));
            }
            ctx.release(inbound.peer, inbound.charged);
            if !ctx.cfg.errs(Mutation::LeakGrants) {
                self.grants.settle(inbound.counted);
            }
        }
    }

    pub(crate) fn received(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        head: MsgHead,
        (handle, offset, len): (u32, u64, u64),
        bounce: Option<u64>,
    ) {
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.stats.messages_received += 1;
            conn.stats.bytes_received += head.total;
        }
        let last = self.receives.leave(handle);
        ctx.events.push_back(Event::RecvDone {
            handle,
            peer,
            head,
            offset,
            len,
            bounce,
            last,
        });
    }
}
