//! Remote reads of this node: their requests, first grants and refusals.

use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{new_inbound, InboundState};
use marline_wire::{Frame, MsgHead, Read, BLOCK_BYTES, FLAG_PART};

impl Incoming {
    /// Posts a read of `len` bytes of the peer's memory into `handle`.
    pub(crate) fn post_read(
        &mut self,
        ctx: &mut Context<'_>,
        (handle, peer): (u32, PeerId),
        (key, addr, len): (u64, u64, u64),
        flags: u8,
    ) {
        let Some(conn) = ctx.directory.conn_mut(peer) else {
            return;
        };
        let number = conn.rx.next_read;
        conn.rx.next_read += 1;
        let bound = InboundState::Bound {
            handle,
            base: 0,
            capacity: len,
        };
        let mut inbound = new_inbound(peer, number as u64, len, bound);
        inbound.rendezvous = true;
        inbound.reply = true;
        inbound.wanted = len;
        // The head keeps the key and address for the READ frame until that is sent.
        inbound.head = Some(MsgHead {
            number,
            flags,
            tag: key,
            data: addr,
            total: len,
        });
        let id = self.inbounds.insert(inbound);
        conn.rx.pending_reads.insert(number, id);
        if conn.session.own {
            // The owner is asked for the memory at once.
            return ctx.events.push_back(Event::ReadAsked {
                peer,
                number,
                key,
                addr,
                len,
                upto: len,
                part: flags & FLAG_PART != 0,
            });
        }
        conn.tx.control.push_back(FrameRef::Read(id));
        ctx.run_queue.mark_ready(conn);
        if ctx.local.writes {
            self.want_keys(ctx, id);
        }
    }

    /// Handles the peer's refusal of a local read.
    pub(crate) fn on_read_fail(&mut self, ctx: &mut Context<'_>, peer: PeerId, number: u32) {
        let Some(conn) = ctx.conn_mut(peer) else {
            return;
        };
        let Some(key) = conn.rx.pending_reads.remove(&number) else {
            return;
        };
        let state = self.inbounds.get(key).map(|i| i.state);
        self.drop_inbound(ctx, key);
        if let Some(InboundState::Bound { handle, .. }) = state {
            ctx.events.push_back(Event::ReadDone { handle, ok: false });
        }
        // The bytes granted to the read no longer use the budget: other messages get it.
        let now = ctx.descheduled.last_poll_ns;
        self.pump_grants(ctx, now);
    }

    /// The READ frame of a remote read. Its first call also decides the read's first grant.
    pub(crate) fn read_frame(&mut self, key: Key, now: u64) -> Option<Frame> {
        let window = self.grants.window_max();
        let inbound = self.inbounds.get_mut(key)?;
        let head = inbound.head?;
        if inbound.granted == 0 {
            let first = inbound.wanted.min(window / BLOCK_BYTES * BLOCK_BYTES);
            inbound.granted = first;
            inbound.counted = first;
            inbound.announced = first;
            inbound.last_data_ns = now;
            self.grants.give_first(first);
        }
        let (number, upto) = (head.number, inbound.granted);
        Some(Frame::Read(Read {
            number,
            flags: head.flags,
            key: head.tag,
            addr: head.data,
            len: head.total,
            upto,
        }))
    }
}
