//! Outgoing bulk: fragments of long messages, one per packet, in packets of equal length, so that
//! the engine can hand the kernel a whole batch. The first packet of a batch is built like any
//! other. The following packets of the same message differ from it only in number and offset, and
//! are built in one loop ([`Node::continue_bulk`]).

use crate::base::mutation::Mutation;
use crate::base::types::{sum_seed, Batch, Spans, Transmit};
use crate::node::Node;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::path::Path;
use crate::state::transfer::SendKind;
use crate::tx::packet_builder::add_credit;
use alloc::boxed::Box;
use marline_wire::{FragmentHead, BLOCK_BYTES, FLAG_UNSUMMED};

/// Packets that continue a batch: consecutive fragments of one message.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of packets.
    pub packets: usize,
    /// Handle of the send in the engine.
    pub handle: u32,
    /// Offset of the first fragment in the message, in bytes.
    pub offset: u64,
    /// Bytes of each fragment.
    pub fragment: usize,
    /// The packets carry checksums; otherwise the field is 0.
    pub summed: bool,
    src_id: u64,
    number: u32,
    reply: bool,
}

impl Run {
    /// Checksum seed of the fragment at `offset`.
    #[inline]
    pub fn seed(&self, offset: u64) -> u64 {
        sum_seed(self.src_id, self.number, self.reply, offset, self.fragment)
    }
}

impl Node {
    /// Builds a packet with one full fragment of the next bulk message. `segment`: the packet
    /// continues a batch of packets of that length.
    pub(crate) fn bulk_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        segment: Option<usize>,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let path = &conn.paths[at];
        if !path.window_has_room() {
            return None;
        }
        let rest = self.cfg.fragment_head_len();
        let limit = segment.unwrap_or_else(|| whole_packet(path.datagram_max(), rest));
        let limit = limit.min(path.datagram_max());
        let (outgoing, mut ctx) = self.outgoing();
        let key = outgoing.next_bulk(&mut ctx, conn, limit, segment.is_some())?;
        if segment.is_some() && outgoing.placed_next(ctx.cfg, ctx.local, conn, at) {
            return None;
        }
        let mut b = self.begin(conn, limit, out, spans);
        let send = self.outgoing.get(key)?;
        let offset = send.next;
        let begins = send.kind == SendKind::Eager && offset == 0;
        let most = (send.upto - offset).min(self.cfg.fragment_max as u64);
        let pushed = self.outgoing.push_data(key, offset, most as u32, &mut b);
        if let Some(len) = pushed {
            self.outgoing.advance(key, offset + len as u64);
            if len == self.cfg.fragment_max {
                self.outgoing.push_more(&self.cfg, key, &mut b);
            }
            self.outgoing.leave_bulk(conn, key);
            let ended = conn.tx.bulk.front() != Some(&key);
            if ended {
                b.add_acks(&mut self.context(), now, conn, at);
                add_credit(conn, &mut b);
            }
            // A whole fragment stays alone in its packet, so that a run can follow.
            if (begins || ended) && limit <= self.cfg.fragment_max as usize {
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.fill_up(&mut ctx, conn, (at, limit), &mut b);
            }
        }
        let alone = pushed.is_none() && segment.is_none() && lone_hello(conn, at);
        let packet = self.finish(now, conn, at, b, pushed.is_none() && !alone, !alone);
        // Without reliability no ack of HELLO will come.
        conn.session.hello_acked |= alone && !self.cfg.reliable;
        packet
    }

    /// Writes the heads of up to `most` more packets of a batch, each `batch.segment` long, one
    /// after another in `out`. `model`: the head of the packet before them. `None`: the next
    /// fragment is not a whole fragment of the same message, and `poll_transmit` must build its
    /// packet.
    pub fn continue_bulk(
        &mut self,
        now_ns: u64,
        batch: &Batch,
        model: &FragmentHead,
        out: &mut [u8],
        most: usize,
    ) -> Option<Run> {
        if self.cfg.errs(Mutation::ReuseNumber) {
            return None;
        }
        let mut conn = self.take(batch.peer)?;
        let (outgoing, mut ctx) = self.outgoing();
        let run = outgoing.run(&mut ctx, now_ns, &mut conn, batch, model, (out, most));
        self.put(conn);
        run
    }
}

impl Outgoing {
    fn run(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        conn: &mut Conn,
        batch: &Batch,
        model: &FragmentHead,
        (out, most): (&mut [u8], usize),
    ) -> Option<Run> {
        let segment = batch.segment;
        let fragment = segment.checked_sub(ctx.cfg.fragment_head_len())? as u64;
        let &key = conn.tx.bulk.front()?;
        let send = self.get_mut(key)?;
        let flags = send.fragment_flags();
        if !model.is_of(send.head.number, flags) || fragment == 0 || fragment % BLOCK_BYTES != 0 {
            return None;
        }
        // The last wanted byte's fragment requests an ack, so its packet is not part of a run.
        let end = send.upto.min(match send.urgent {
            true => send.wanted.saturating_sub(1),
            false => u64::MAX,
        });
        let path = &mut conn.paths[batch.path];
        let first = send.next;
        let number = path.ring.next_number();
        let room = path.packets_that_fit(segment, ctx.cfg.reliable);
        let room = room.min(end.saturating_sub(first) / fragment) as usize;
        let most = most.min(room);
        let mut packets = 0;
        for packet in out.chunks_exact_mut(segment).take(most) {
            model.write(packet, number + packets as u64, send.next);
            send.next += fragment;
            packets += 1;
        }
        if packets == 0 {
            return None;
        }
        let sent = send.next - first;
        let what = (key, first, fragment as u32);
        let when = (path.congestion.delivered(), now);
        let reliable = ctx.cfg.reliable && !model.is_native();
        match reliable {
            true => path.ring.push_fragments(what, packets, segment, when),
            false => (0..packets).for_each(|_| path.ring.push(&[], segment, when.0, now)),
        }
        path.probing.on_run_sent(reliable);
        path.stats.packets_sent += packets as u64;
        path.stats.bytes_sent += (packets * segment) as u64;
        let run = Run {
            packets,
            handle: send.handle,
            offset: first,
            fragment: fragment as usize,
            summed: send.head.flags & FLAG_UNSUMMED == 0,
            src_id: ctx.local.id,
            number: send.head.number,
            reply: send.kind == SendKind::Reply,
        };
        if !reliable {
            self.left_natively(key, first, sent);
        }
        conn.stats.queue_max = conn.stats.queue_max.max(conn.waiting() as u64);
        ctx.stats.queue_max = ctx.stats.queue_max.max(conn.stats.queue_max);
        let natives = (number, packets as u64);
        if model.is_native() && conn.paths[batch.path].on_left_natively(now, natives) {
            ctx.run_queue.mark_ready(conn);
        }
        self.leave_bulk(conn, key);
        Some(run)
    }
}

impl Path {
    /// Packets of `segment` bytes that may leave: the congestion window has room before each.
    fn packets_that_fit(&self, segment: usize, reliable: bool) -> u64 {
        if self.validation.is_pending() {
            return 0;
        }
        let window = self.congestion.room(self.ring.in_flight());
        match reliable {
            true => window.div_ceil(segment as u64),
            // No packet waits for an ack.
            false if window > 0 => u64::MAX,
            false => 0,
        }
    }
}

/// Length of a batch's packets, at most `limit`, with whole blocks and `rest` other bytes.
fn whole_packet(limit: usize, rest: usize) -> usize {
    let block = BLOCK_BYTES as usize;
    match limit.saturating_sub(rest) / block {
        0 => limit,
        n => rest + n * block,
    }
}

/// True if HELLO needs a packet of its own on the path because a block does not fit beside it
/// (IPv4's minimum MTU). That happens once: later blocks leave without HELLO until it is
/// acknowledged.
pub(crate) fn lone_hello(conn: &Conn, at: usize) -> bool {
    !conn.session.needs_no_hello() && conn.paths[at].ring.waiting() == 0
}
