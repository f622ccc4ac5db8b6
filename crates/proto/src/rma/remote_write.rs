//! Fragments that rails write into registered memory (RDMA writes, or direct writes over UDP)
//! instead of sending them in packets.
//!
//! With its grants the receiver advertises rkeys ([`Rkey`]), one for each rail that can write that
//! message. The sender writes a fragment and sends, on the same path, a write notification: a
//! packet with a [`Written`] frame, which has the fragment's place and sum but no payload. The
//! receiver sums the bytes in its memory. Only if the sum is correct has the fragment arrived, and
//! the packet is acknowledged. Loss detection, acks, retransmission and failover work as for any
//! fragment.
//!
//! A write may land late, after its fragment was retransmitted or the message has ended. Therefore
//!
//! - each byte is written at most once. Written bytes without an ack are retransmitted in packets
//!   with [`FLAG_DEREGISTER`]: the receiver ends the message's keys before it stores these packets'
//!   bytes. Otherwise a damaged late write could land on verified bytes;
//! - a message's keys end before the message does, successful or not ([`Event::Deregister`] comes
//!   first);
//! - granted memory is poisoned first, so that its former contents cannot have the correct sum
//!   before the write has landed; except for rails that know which writes have landed (shm, TCP).
//!
//! Without a sum in the frame only rails with ordered writes are trusted. The datagrams of a direct
//! write have no headers and may be joined in another order: they are trusted only under a sum that
//! depends on order ([`crate::Config::seeing_order`]). Both ends enforce this.

use crate::base::blocks::Covered;
use crate::base::side_work::WriteOut;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, sums_of, PathState, PeerId, Spans, Transmit};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::{Path, WriteBackoff};
use crate::state::sent_packets::FrameRef;
use crate::state::write_span::{span_max, DIRECT_PACKET_MAX, SPAN_MIN};
use alloc::boxed::Box;
use marline_wire::{
    blocks, Frame, Header, RailWrites, Rkey, Written, BLOCK_BYTES, FLAG_DEREGISTER,
    FLAG_READ_REPLY, FLAG_UNSUMMED,
};

/// Write backoff: failed writes make a path skip up to two to this power of them.
const FAILURES_MAX: u8 = 7;

/// The next write on a path.
struct NextWrite {
    key: Key,
    offset: u64,
    len: u64,
    /// Most bytes of a write on the path.
    most: u64,
    remote_key: u64,
    summed: bool,
}

impl Path {
    /// Handles the loss of a written fragment: increases the write backoff.
    pub(crate) fn write_failed(&mut self) {
        let backoff = &mut self.write_backoff;
        backoff.failures = (backoff.failures + 1).min(FAILURES_MAX);
        backoff.skips = 1 << backoff.failures;
    }

    /// Returns whether the next fragment may be written; counts down the backoff.
    fn write_turn(&mut self) -> bool {
        let backoff = &mut self.write_backoff;
        let may = backoff.skips == 0;
        backoff.skips = backoff.skips.saturating_sub(1);
        may
    }
}

/// The sender.
impl Node {
    /// The next bulk fragment on a path, written if the rail and the message allow it.
    pub(crate) fn fragment_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        if conn.paths[at].to.writes() {
            let written = self.written_packet(now, conn, at, out, spans);
            if written.is_some() {
                return written;
            }
        }
        self.bulk_packet(now, conn, at, None, out, spans)
    }

    /// The next write on a path, if it is allowed at all.
    fn next_write(&self, conn: &Conn, at: usize) -> Option<NextWrite> {
        let &key = conn.tx.bulk.front()?;
        let send = self.ops.sends.get(key)?;
        let path = &conn.paths[at];
        let rail = &self.local.rails[path.local as usize];
        if !rail.addr.writes() || !path.to.writes() {
            return None;
        }
        let most = span_max(rail, path.datagram_max);
        let (offset, left) = (send.next, send.upto.saturating_sub(send.next));
        let placed = path.to.writes == RailWrites::Keyed;
        let chunk = match self.cfg.staged.filter(|_| placed) {
            Some(plan) => plan.next_len(send.head.total, offset).max(SPAN_MIN),
            None => most,
        };
        let len = left.min(chunk).min(most);
        let keys = &send.keys.as_ref()?.by_rail;
        let &(_, remote_key) = keys.iter().find(|k| k.0 == path.to.index)?;
        let algorithm = sums_of(self.algorithm_on(conn, at), send.head.flags);
        let summed = algorithm != 0;
        let fits = len >= SPAN_MIN && self.local.trusts_writes(&self.cfg, path.local, algorithm);
        fits.then_some(NextWrite {
            key,
            offset,
            len,
            most,
            remote_key,
            summed,
        })
    }

    /// Returns whether the next transmission on a path is a write.
    pub(crate) fn writes_next(&self, conn: &Conn, at: usize) -> bool {
        conn.paths[at].write_backoff.skips == 0 && self.next_write(conn, at).is_some()
    }

    /// Returns whether the next transmission on a path is a write to a place by its key. Its bytes
    /// must not be used to fill up packets.
    pub(crate) fn placed_next(&self, conn: &Conn, at: usize) -> bool {
        conn.paths[at].to.writes == RailWrites::Keyed && self.writes_next(conn, at)
    }

    /// Returns whether a rail to the peer can carry a message directly out of the send's memory.
    pub fn copies_once(&self, peer: PeerId) -> bool {
        let able = |path: &Path| {
            let rail = &self.local.rails[path.local as usize];
            let writes = path.to.writes() && rail.addr.writes();
            rail.addr.kind.spares_copies() && writes && path.state == PathState::Up && path.usable()
        };
        self.cfg.reliable && self.conn(peer).is_some_and(|c| c.paths.iter().any(able))
    }

    fn written_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let next = self.next_write(conn, at)?;
        if !conn.paths[at].write_turn() {
            return None;
        }
        let NextWrite {
            key, offset, len, ..
        } = next;
        let send = self.ops.sends.get(key)?;
        let unsummed = send.head.flags & FLAG_UNSUMMED;
        let reply = send.kind == crate::state::transfer::SendKind::Reply;
        let frame = Frame::Written(Written {
            number: send.head.number,
            flags: unsummed | if reply { FLAG_READ_REPLY } else { 0 },
            offset,
            total: send.head.total,
            len: len as u32,
            sum: 0,
        });
        let message = (self.local.id, send.head.number, reply);
        let seed = sum_seed(message.0, message.1, reply, offset, len as usize);
        let message_end = send.wanted;
        let (handle, ends) = (send.handle, send.urgent && offset + len >= send.wanted);
        // A packet with HELLO is longer, and gets no acks.
        let (most, greeted) = (conn.paths[at].datagram_max, conn.session.hello_acked);
        let limit = if greeted {
            most.min(DIRECT_PACKET_MAX)
        } else {
            most
        };
        let mut b = self.begin(conn, limit, out, spans);
        if greeted {
            self.add_acks(now, conn, at, &mut b);
        }
        let slot = b.writer.push(&frame)?;
        b.frames.push(FrameRef::Written {
            at: at as u16,
            xfer: key,
            offset,
            len: len as u32,
        });
        b.written = len as usize;
        if ends {
            b.flags |= Header::FLAG_ACK_NOW;
        }
        self.pending.write_out = Some(WriteOut {
            handle,
            offset,
            len: len as u32,
            key: next.remote_key,
            sum_at: slot.sum_at as usize,
            seed,
            summed: next.summed,
            segment: most,
            span: next.most,
            message_end,
            message,
        });
        self.ops.advance(key, offset + len);
        self.leave_bulk(conn, key);
        self.stats.written += 1;
        self.finish(now, conn, at, b, false, false)
    }

    /// Sets the number of datagrams of a direct write that a rail was found to support; 0: none
    /// (any more).
    pub fn limit_direct(&mut self, rail: usize, datagrams: usize) {
        let rail = &mut self.local.rails[rail];
        rail.direct_datagrams = datagrams;
        if datagrams == 0 && rail.addr.writes == RailWrites::Direct {
            rail.addr.writes = RailWrites::None;
        }
    }

    /// Returns whether any rail can write.
    pub fn writes(&self) -> bool {
        self.local.writes
    }

    /// The write that accompanies the packet that `poll_transmit` has just built
    /// ([`Transmit::written`]).
    pub fn take_write(&mut self) -> Option<WriteOut> {
        self.pending.write_out.take()
    }

    /// Requeues a written fragment: it and the rest of the message are sent in packets.
    pub(crate) fn requeue_written(&mut self, key: Key, offset: u64, len: u32) {
        let Some(send) = self.ops.sends.get_mut(key) else {
            return;
        };
        if send.acked.covered(offset / BLOCK_BYTES, blocks(len as u64)) != Covered::All {
            send.head.flags |= FLAG_DEREGISTER;
            if let Some(keys) = send.keys.as_mut() {
                keys.by_rail.clear();
            }
        }
    }

    /// Handles an rkey from the receiver of a local message.
    pub(crate) fn on_key(&mut self, peer: PeerId, told: &Rkey) {
        let Some(conn) = self.conn(peer) else { return };
        let table = match told.flags & FLAG_READ_REPLY {
            0 => &conn.tx.rendezvous,
            _ => &conn.tx.replies,
        };
        let send = table.get(&told.number).copied();
        let Some(send) = send.and_then(|key| self.ops.sends.get_mut(key)) else {
            return;
        };
        if send.head.flags & FLAG_DEREGISTER != 0 || !self.cfg.reliable {
            return;
        }
        let keys = &mut send.keys.get_or_insert_default().by_rail;
        if !keys.iter().any(|k| k.0 == told.rail) {
            keys.push((told.rail, told.key));
        }
    }

    /// Handles the ack of a written fragment: resets the write backoff.
    pub(crate) fn write_arrived(&mut self, peer: PeerId, at: u16) {
        if let Some(path) = (self.conn_mut(peer)).and_then(|c| c.paths.get_mut(at as usize)) {
            path.write_backoff = WriteBackoff::default();
        }
    }
}

/// The receiver.
impl Node {
    /// Reports that the owner registered the memory of an inbound message on a local rail (after
    /// [`Event::RegistrationWanted`]). The key is sent with the message's grants.
    pub fn registered_on(&mut self, inbound: u64, rail: u8, rail_key: u64) {
        let (incoming, mut ctx) = self.incoming();
        incoming.registered_on(&mut ctx, inbound, rail, rail_key);
    }
}
