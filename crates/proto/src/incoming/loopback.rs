//! Loopback: messages of an endpoint to itself. They are matched like all messages but need no
//! packets, rail or sums: the owner copies once from the memory of the send to that of the receive.
//! Until a receive matches, the message stays in its sender's memory.

use crate::base::config::MESSAGE_OVERHEAD;
use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::transfer::{new_inbound, InboundState};
use marline_wire::MsgHead;

impl Incoming {
    /// Posts the send `handle` with this head as a loopback message.
    pub(crate) fn send_loopback(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        handle: u32,
        head: MsgHead,
    ) {
        let number = head.number as u64;
        let mut inbound = new_inbound(peer, number, head.total, InboundState::Unexpected);
        inbound.own = Some(handle);
        inbound.head = Some(head);
        inbound.charged = MESSAGE_OVERHEAD;
        ctx.charge(peer, MESSAGE_OVERHEAD);
        let key = self.inbounds.insert(inbound);
        self.match_head(ctx, peer, &head, key, 0);
    }

    /// Copies a loopback message to the receive that it matched (or drops a discarded message), and
    /// ends both operations.
    pub(crate) fn deliver_loopback(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        let Some(send) = inbound.own else { return };
        if let InboundState::Bound {
            handle,
            base,
            capacity,
        } = inbound.state
        {
            ctx.events.push_back(Event::Copy {
                send,
                recv: handle,
                offset: base,
                len: inbound.total.min(capacity),
            });
        }
        self.finish_if_complete(ctx, key);
        ctx.events.push_back(Event::SendDone {
            handle: send,
            ok: true,
        });
    }

    /// Serves a read of the endpoint's own memory from `handle`'s memory.
    pub(crate) fn serve_loopback(
        &mut self,
        ctx: &mut Context<'_>,
        handle: u32,
        peer: PeerId,
        number: u32,
    ) {
        let conn = ctx.conn(peer);
        let asked = conn.and_then(|conn| conn.rx.pending_reads.get(&number).copied());
        let Some(inbound) = asked.and_then(|key| self.inbounds.get_mut(key)) else {
            return;
        };
        inbound.own = Some(handle);
        asked
            .into_iter()
            .for_each(|key| self.deliver_loopback(ctx, key));
    }
}
