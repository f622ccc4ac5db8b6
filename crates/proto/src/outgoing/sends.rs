//! Outgoing messages of a node, and replies to peers' reads: from the post to the last ack.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::side_work::{AdvertisementOut, WriteOut};
use crate::base::slab::{Key, Slab};
use crate::base::types::{sum_seed, Event, PeerId, Span};
use crate::outgoing::builder::Builder;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::credit::Credit;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{SendKind, SendXfer};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use marline_wire::{
    align8, blocks, Data, Eager, Frame, Grant, Header, Rts, BLOCK_BYTES, DATA_LEN, EAGER_LEN,
    FLAG_READ_REPLY, FLAG_REFUSED, FLAG_UNSUMMED, HEADER_LEN, RTS_LEN,
};

/// All outgoing messages.
pub(crate) struct Outgoing {
    /// Id of this endpoint, part of checksum seeds.
    pub(super) src_id: u64,
    pub(super) table: Slab<SendXfer>,
    /// The ADVERTISEMENT frames in the packet built last.
    pub(super) advertisements: Vec<AdvertisementOut>,
    /// The write that goes with the packet built last.
    pub(super) write_out: Option<WriteOut>,
    /// Native mode: sends whose last packet was just built.
    native_done: Vec<Key>,
    /// Time of the packet that is built or handled, for the clocks of waits.
    pub(super) now_ns: u64,
}

impl Outgoing {
    /// No messages; `src_id` is the id of this endpoint.
    pub(crate) fn new(src_id: u64) -> Outgoing {
        Outgoing {
            src_id,
            table: Slab::new(),
            advertisements: Vec::new(),
            write_out: None,
            native_done: Vec::new(),
            now_ns: 0,
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, send: SendXfer) -> Key {
        self.table.insert(send)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&SendXfer> {
        self.table.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut SendXfer> {
        self.table.get_mut(key)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<SendXfer> {
        self.table.remove(key)
    }

    /// Number of messages that are not delivered.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SendXfer> {
        self.table.iter().map(|(_, send)| send)
    }

    /// Bytes of heap in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        let sets: usize = self.iter().map(|s| s.acked.heap_bytes()).sum();
        sets + self.table.heap_bytes()
    }

    /// Forgets what belongs to the packet built last.
    #[inline]
    pub(crate) fn begin_packet(&mut self) {
        self.advertisements.clear();
    }

    /// Notes the time of the packet that is to be built or handled.
    #[inline]
    pub(crate) fn set_time(&mut self, now: u64) {
        self.now_ns = now;
    }

    /// Begins the waits of the messages posted last, which find no room to leave.
    pub(crate) fn begin_waits(&mut self, queue: &VecDeque<Key>) {
        for &key in queue.iter().rev() {
            let send = self.table.get_mut(key);
            if !send.is_some_and(|send| send.wait.begin(self.now_ns)) {
                return;
            }
        }
    }

    /// Notes that all bytes of a message below `to` have left.
    pub(crate) fn advance(&mut self, key: Key, to: u64) {
        if let Some(send) = self.table.get_mut(key) {
            send.next = to;
        }
    }

    /// Begins an eager message. A remote write is listed until its owner answers.
    pub(crate) fn start_eager(&mut self, ctx: &mut Context<'_>, conn: &mut Conn, key: Key) {
        self.start(ctx, key, SendKind::Eager);
        if let Some(send) = self.table.get(key).filter(|send| send.is_put()) {
            conn.tx.rendezvous.insert(send.head.number, key);
        }
    }

    /// Sets how a message travels; an eager message may leave in full.
    fn start(&mut self, ctx: &mut Context<'_>, key: Key, kind: SendKind) {
        ctx.stats.eager_sent += (kind == SendKind::Eager) as u64;
        ctx.stats.rendezvous_sent += (kind == SendKind::Rendezvous) as u64;
        if let Some(send) = self.table.get_mut(key) {
            send.wait.begin(self.now_ns);
            send.kind = kind;
            if kind == SendKind::Eager {
                send.upto = send.head.total;
                send.granted = true;
            }
        }
    }

    /// Adds new messages that fit one packet, and rendezvous requests, in order.
    pub(crate) fn add_heads(
        &mut self,
        ctx: &mut Context<'_>,
        conn: &mut Conn,
        at: usize,
        b: &mut Builder<'_, '_>,
    ) {
        while let Some(&key) = conn.tx.queue.front() {
            let Some(send) = self.table.get(key) else {
                conn.tx.queue.pop_front();
                continue;
            };
            let total = send.head.total;
            let eager = send.is_rpc() || send.goes_eager(ctx.cfg, &conn.credit);
            let cost = Credit::cost(if eager { total } else { 0 });
            if !conn.credit.covers(cost) && !ctx.cfg.errs(Mutation::IgnoreCredit) {
                break;
            }
            let head = send.head;
            if eager {
                if !b.writer.fits(EAGER_LEN, total as usize) || !ctx.cfg.undivided(total) {
                    break;
                }
                self.start_eager(ctx, conn, key);
                self.push_data(key, 0, total as u32, b);
                self.advance(key, total);
            } else {
                if !b.writer.fits(RTS_LEN, 0) {
                    break;
                }
                self.push_advertisement(ctx.cfg, ctx.local, conn, at, key, b);
                if !b.control(&Frame::Rts(Rts { head }), Some(FrameRef::Rts(key))) {
                    break;
                }
                self.start(ctx, key, SendKind::Rendezvous);
                conn.tx.rendezvous.insert(head.number, key);
            }
            conn.credit.spend(cost);
            conn.tx.queue.pop_front();
        }
    }

    /// Appends a fragment of at most `len` bytes, cut to whole blocks if necessary.
    pub(crate) fn push_data(
        &self,
        key: Key,
        offset: u64,
        len: u32,
        b: &mut Builder<'_, '_>,
    ) -> Option<u32> {
        let send = self.table.get(key)?;
        let room = b.writer.room().checked_sub(DATA_LEN)?;
        let len = if align8(len as usize) <= room {
            len
        } else {
            (room as u64 / BLOCK_BYTES * BLOCK_BYTES) as u32
        };
        if len == 0 && send.head.total != 0 {
            return None;
        }
        let reply = send.kind == SendKind::Reply;
        let number = send.head.number;
        let eager = send.kind == SendKind::Eager && offset == 0;
        let frame = if eager {
            Frame::Eager(Eager {
                head: send.head,
                len: len as u16,
                sum: 0,
            })
        } else {
            let flags = send.fragment_flags();
            let total = send.head.total;
            Frame::Data(Data {
                number,
                flags,
                offset,
                total,
                len: len as u16,
                sum: 0,
            })
        };
        let slot = b.writer.push(&frame)?;
        b.frames.push(FrameRef::Data {
            xfer: key,
            offset,
            len,
        });
        b.spans.push(Span {
            handle: send.handle,
            offset,
            len,
            sum_at: slot.sum_at,
            payload_at: slot.payload_at,
            seed: sum_seed(self.src_id, number, reply, offset, len as usize),
            summed: send.head.flags & FLAG_UNSUMMED == 0,
        });
        if send.urgent && offset + len as u64 >= send.wanted {
            b.flags |= Header::FLAG_ACK_NOW;
        }
        Some(len)
    }

    /// Adds further whole fragments of a message to a packet while they fit, since fragments may be
    /// smaller than a packet. All full packets of a message are then alike.
    pub(crate) fn push_more(&mut self, cfg: &Config, key: Key, b: &mut Builder<'_, '_>) {
        loop {
            let Some(send) = self.table.get(key) else {
                return;
            };
            let (offset, left) = (send.next, send.upto - send.next);
            let len = left.min(cfg.fragment_max as u64);
            if len == 0 || !b.writer.fits(DATA_LEN, len as usize) {
                return;
            }
            let Some(pushed) = self.push_data(key, offset, len as u32, b) else {
                return;
            };
            self.advance(key, offset + pushed as u64);
        }
    }

    /// Handles a grant from the receiver of a local message.
    pub(crate) fn on_grant(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        peer: PeerId,
        grant: &Grant,
    ) {
        self.set_time(now);
        let reply = grant.flags & FLAG_READ_REPLY != 0;
        let Some(conn) = ctx.conn(peer) else { return };
        let table = if reply {
            &conn.tx.replies
        } else {
            &conn.tx.rendezvous
        };
        let Some(&key) = table.get(&grant.number) else {
            return;
        };
        if grant.flags & FLAG_REFUSED != 0 {
            return self.put_refused(ctx, peer, key);
        }
        let Some(send) = self.table.get_mut(key) else {
            return;
        };
        if send.kind == SendKind::Eager && grant.wanted > 0 {
            return; // a remote write without a grant has only an answer
        }
        send.granted = true;
        send.wait.pause(now, false);
        send.wanted = send.wanted.min(whole_blocks(grant.wanted, send.head.total));
        let upto = whole_blocks(grant.upto, send.head.total);
        send.grant(upto.min(send.wanted));
        let more = send.next < send.upto && !send.in_bulk;
        send.in_bulk |= more;
        debug_assert!(send.is_answered());
        if let Some(conn) = ctx.directory.conn_mut(peer) {
            if more {
                conn.tx.bulk.push_back(key);
            }
            ctx.run_queue.mark_ready(conn);
        }
        self.finish_if_done(ctx, key);
    }

    /// Handles the peer's refusal of a local remote write.
    pub(crate) fn put_refused(&mut self, ctx: &mut Context<'_>, peer: PeerId, key: Key) {
        if !self.table.get(key).is_some_and(SendXfer::is_put) {
            return;
        }
        let Some(send) = self.table.remove(key) else {
            return;
        };
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.tx.rendezvous.remove(&send.head.number);
        }
        let handle = send.handle;
        ctx.events
            .push_back(match ctx.cfg.errs(Mutation::HideRefusal) {
                true => Event::SendDone { handle, ok: true },
                false => Event::PutRefused { handle },
            });
    }

    /// Counts bytes of a message as arrived at the receiver, and ends the message if all have.
    pub(crate) fn arrived(&mut self, ctx: &mut Context<'_>, (key, offset, len): (Key, u64, u32)) {
        let Some(send) = self.table.get_mut(key) else {
            return;
        };
        send.acked.insert(offset / BLOCK_BYTES, blocks(len as u64));
        self.finish_if_done(ctx, key);
    }

    /// Counts bytes sent without software reliability as arrived; `finish_natives` ends the
    /// message.
    pub(crate) fn left_natively(&mut self, key: Key, offset: u64, len: u64) {
        if let Some(send) = self.table.get_mut(key) {
            send.acked.insert(offset / BLOCK_BYTES, blocks(len));
            self.native_done.push(key);
        }
    }

    /// Returns whether messages may have ended by leaving.
    #[inline]
    pub(crate) fn has_natives(&self) -> bool {
        !self.native_done.is_empty()
    }

    /// Ends messages whose last byte was sent without software reliability.
    #[cold]
    pub(crate) fn finish_natives(&mut self, ctx: &mut Context<'_>) {
        while let Some(key) = self.native_done.pop() {
            self.finish_if_done(ctx, key);
        }
    }

    /// Ends a send when all wanted bytes are acknowledged.
    pub(crate) fn finish_if_done(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(send) = self.table.get(key) else {
            return;
        };
        let done = match send.kind {
            SendKind::Queued => false,
            SendKind::Eager if send.is_put() && !ctx.cfg.errs(Mutation::EndUnanswered) => {
                send.wanted == 0
            }
            SendKind::Eager if ctx.cfg.errs(Mutation::FreeLogEarly) => send.acked.count() > 0,
            SendKind::Eager => send.acked.count() == blocks(send.head.total),
            SendKind::Rendezvous | SendKind::Reply => {
                send.granted && (send.wanted == 0 || send.acked.count() >= blocks(send.wanted))
            }
        };
        if !done {
            return;
        }
        let Some(send) = self.table.remove(key) else {
            return;
        };
        if send.kind != SendKind::Reply {
            let eager = send.kind == SendKind::Eager;
            ctx.stats.count_wait(eager, send.wait.wait_ns(self.now_ns));
        }
        let answered = send.is_answered();
        let conn = if answered {
            ctx.conn_mut(send.peer)
        } else {
            None
        };
        if let Some(conn) = conn {
            match send.kind {
                SendKind::Reply => conn.tx.replies.remove(&send.head.number),
                _ => conn.tx.rendezvous.remove(&send.head.number),
            };
        }
        ctx.events.push_back(Event::SendDone {
            handle: send.handle,
            ok: true,
        });
    }

    /// Ends every send to a peer that is gone.
    pub(crate) fn end_peer(&mut self, ctx: &mut Context<'_>, peer: PeerId, arrived: Option<u32>) {
        let there = |send: &SendXfer| {
            // A remote write may be refused even after all its bytes arrived.
            let message = matches!(send.kind, SendKind::Eager | SendKind::Rendezvous);
            let message = message && !send.is_put();
            // Numbers wrap around; fewer than half of all numbers are in flight.
            let before = |below: u32| (below.wrapping_sub(send.head.number) as i32) > 0;
            message && arrived.is_some_and(before)
        };
        let keys: Vec<_> = self
            .table
            .iter()
            .filter(|(_, s)| s.peer == peer)
            .map(|(k, _)| k)
            .collect();
        for key in keys {
            if let Some(send) = self.table.remove(key) {
                ctx.events.push_back(Event::SendDone {
                    handle: send.handle,
                    ok: there(&send),
                });
            }
        }
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.tx.clear();
        }
    }

    /// The frame is part of a call.
    pub(crate) fn is_of_rpc(&self, frame: &FrameRef) -> bool {
        match frame {
            FrameRef::Data { xfer, .. } => self.table.get(*xfer).is_some_and(|s| s.is_rpc()),
            _ => false,
        }
    }
}

impl SendXfer {
    pub(crate) fn goes_eager(&self, cfg: &Config, credit: &Credit) -> bool {
        let total = self.head.total;
        let covered = match self.is_rpc() {
            true => credit.covers(Credit::cost(total)),
            false => credit.allows(total),
        };
        let covered = covered || cfg.errs(Mutation::IgnoreCredit);
        let short = total <= cfg.eager_max && !self.waits;
        covered && (short || self.is_rpc())
    }

    /// True if an unsent message leaves eagerly in more than one packet.
    pub(crate) fn is_bulk(&self, cfg: &Config, conn: &Conn, limit: usize) -> bool {
        let total = self.head.total;
        let rest = HEADER_LEN + EAGER_LEN + cfg.tag_len();
        let fits = rest + align8(total as usize) <= limit;
        !(fits && cfg.undivided(total)) && self.goes_eager(cfg, &conn.credit)
    }
}

/// Rounds a byte count that a peer sent, for a message of `total` bytes, down to whole blocks: only
/// a message's last fragment may end within a block.
pub(crate) fn whole_blocks(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        total
    } else {
        bytes - bytes % BLOCK_BYTES
    }
}

#[cfg(test)]
#[path = "sends_test.rs"]
mod tests;
