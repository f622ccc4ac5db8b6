//! Retaining a sent packet's frames until they are acknowledged. For a short packet this is done
//! after the kernel has taken it, so that it adds no latency.

use crate::base::types::Transmit;
use crate::node::Node;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::pending::{Unrecorded, UNRECORDED_MAX};
use crate::state::sent_packets::FrameRef;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Node {
    /// Finishes the bookkeeping of the packet that was built last, after it was sent.
    #[inline]
    pub fn sent(&mut self, now_ns: u64) {
        let Some(peer) = self.pending.unrecorded.map(|u| u.peer) else {
            return;
        };
        if let Some(mut conn) = self.take(peer) {
            self.keep_built(now_ns, &mut conn);
            self.left(now_ns, conn, true);
        }
    }

    #[inline]
    pub(crate) fn keep_built(&mut self, now: u64, conn: &mut Conn) {
        if let Some(Unrecorded { path, len, .. }) = self.pending.unrecorded.take() {
            let frames = core::mem::take(&mut self.pending.scratch);
            let (outgoing, mut ctx) = self.outgoing();
            self.pending.scratch = outgoing.keep(&mut ctx, now, conn, path, frames, len);
        }
    }

    /// Called after building for a peer: queues the peer again if it has more to send. `some`: a
    /// packet was built.
    #[inline]
    pub(crate) fn left(&mut self, now: u64, mut conn: Box<Conn>, some: bool) {
        let peer = conn.peer;
        // A short message alone usually leaves no other work.
        if some && (conn.has_work() || conn.due_ack(now, self.cfg.ack_delay_ns)) {
            self.run_queue.mark_ready(&mut conn);
        }
        self.put(conn);
        self.context().touch_soon(peer, now);
    }

    /// Retains the frames of a packet of `len` bytes, including writes. For a short packet this is
    /// deferred until [`Node::sent`].
    pub(crate) fn keep_later(
        &mut self,
        now: u64,
        conn: &mut Conn,
        packet: &Transmit,
        (frames, len): (Vec<FrameRef>, usize),
    ) {
        let path = packet.batch.path;
        let whole = packet.batch.bulk || packet.written || len > UNRECORDED_MAX;
        if whole || !self.cfg.reliable || conn.paths[path].policy.native {
            let (outgoing, mut ctx) = self.outgoing();
            self.pending.scratch = outgoing.keep(&mut ctx, now, conn, path, frames, len);
            return;
        }
        let peer = conn.peer;
        self.pending.scratch = frames;
        self.pending.unrecorded = Some(Unrecorded { peer, path, len });
    }
}

impl Outgoing {
    /// Retains the frames of a packet until it is acknowledged. Returns their list for reuse.
    fn keep(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        conn: &mut Conn,
        at: usize,
        mut frames: Vec<FrameRef>,
        len: usize,
    ) -> Vec<FrameRef> {
        if self.leaves_natively(conn, at, &frames) {
            for (xfer, offset, len) in frames.iter().filter_map(FrameRef::bytes_of) {
                self.left_natively(xfer, offset, len as u64);
            }
            frames.retain(|frame| frame.bytes_of().is_none());
            let number = conn.paths[at].ring.next_number();
            if conn.paths[at].on_left_natively(now, (number, 1)) {
                ctx.run_queue.mark_ready(conn);
            }
        }
        let path = &mut conn.paths[at];
        if ctx.cfg.reliable {
            let first = path.ring.waiting() == 0;
            if first {
                path.congestion.on_first_sent(now);
                path.pto.restart(now);
            }
            path.ring
                .push(&frames, len, path.congestion.delivered(), now);
            if !frames.is_empty() {
                conn.begin_waiting(now);
                conn.stats.queue_max = conn.stats.queue_max.max(conn.waiting() as u64);
                ctx.stats.queue_max = ctx.stats.queue_max.max(conn.stats.queue_max);
            }
        } else {
            path.ring.push(&[], len, path.congestion.delivered(), now);
            let hello = frames.contains(&FrameRef::Hello(ctx.local.revision));
            conn.session.hello_acked |= hello && conn.session.epoch.is_some();
            for (xfer, offset, len) in frames.iter().filter_map(FrameRef::bytes_of) {
                self.left_natively(xfer, offset, len as u64);
            }
        }
        conn.probe_sizes_if_bulk(ctx.cfg.reliable);
        frames
    }
}
