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
use crate::base::config::RailSpec;
use crate::base::mutation::Mutation;
use crate::base::side_work::WriteOut;
use crate::base::slab::Key;
use crate::base::types::{
    sum_seed, sums_of, DropReason, Event, Memory, PathState, PeerId, Spans, Transmit, WriteCheck,
    WrittenSum,
};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{InboundState, Keys};
use crate::tx::packet_builder::Builder;
use alloc::boxed::Box;
use marline_wire::{
    blocks, Frame, Header, RailWrites, Rkey, Written, BLOCK_BYTES, DIRECT_HEAD_LEN,
    FLAG_DEREGISTER, FLAG_READ_REPLY, FLAG_UNSUMMED, GRANT_LEN, PACKET_MAX,
};

/// Most bytes of one write: bounds the loss of a failed write, and the wait of other packets on the
/// path.
const SPAN_MAX: u64 = 65_536 / BLOCK_BYTES * BLOCK_BYTES;
/// On rails that spare copies a message of 64 KiB is one write, without a remainder that needs a
/// packet.
const SPAN_LONG: u64 = 65_536u64.next_multiple_of(BLOCK_BYTES);
/// Bytes of a super-packet reserved for a direct write's head and the packet in front of its bytes.
/// That packet has the write notification and may have acks and grants; a longer one is sent
/// separately.
const DIRECT_ROOM: usize = (DIRECT_HEAD_LEN + DIRECT_PACKET_MAX).next_multiple_of(64) + 64;
/// Longest packet in front of a direct write's bytes. (Written frame and header: 88 bytes; one ack
/// of four masks and a grant with its keys: 120.)
pub const DIRECT_PACKET_MAX: usize = 256;
/// Shorter fragments are sent in packets.
const SPAN_MIN: u64 = 4 * BLOCK_BYTES;

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
        let most = span_max(rail, path.datagram_max());
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
        let fits = len >= SPAN_MIN && self.trusts_writes(path.local, algorithm);
        fits.then_some(NextWrite {
            key,
            offset,
            len,
            most,
            remote_key,
            summed,
        })
    }

    /// Returns whether a sum of this algorithm (0: none) suffices to trust a write on a local rail.
    fn trusts_writes(&self, rail: u8, algorithm: u8) -> bool {
        let rail = &self.local.rails[rail as usize];
        let placed = rail.addr.writes == RailWrites::Keyed;
        let seen = match placed || self.cfg.errs(Mutation::BlindSums) {
            true => algorithm != 0,
            false => self.cfg.seeing_order.contains(&algorithm),
        };
        seen || rail.ordered_writes
    }

    /// Returns whether the next transmission on a path is a write.
    pub(crate) fn writes_next(&self, conn: &Conn, at: usize) -> bool {
        conn.paths[at].link.may_write() && self.next_write(conn, at).is_some()
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
            rail.addr.kind.spares_copies()
                && writes
                && path.state() == PathState::Up
                && path.usable()
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
        if !conn.paths[at].link.write_turn() {
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
        let (most, greeted) = (conn.paths[at].datagram_max(), conn.session.hello_acked);
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

    /// Longest write that the peer probably makes into local memory, taken to be the same as ours
    /// into its memory.
    pub(crate) fn write_span(&self, peer: PeerId) -> Option<u64> {
        let ours = |path: &Path| &self.local.rails[path.local as usize];
        let able = |path: &&Path| path.usable() && path.to.writes() && ours(path).addr.writes();
        let path = self.conn(peer)?.paths.iter().find(able)?;
        let span = span_max(ours(path), path.datagram_max());
        // A few short datagrams have no room for a write.
        Some(span).filter(|&span| span >= SPAN_MIN)
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
            path.link.on_write_acked();
        }
    }
}

/// The receiver.
impl Node {
    /// Asks the owner to register the memory of a message, as a whole, on rails that could write
    /// it, if the message is suitable.
    pub(crate) fn want_keys(&mut self, key: Key) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let InboundState::Bound {
            handle,
            base,
            capacity,
        } = inbound.state
        else {
            return;
        };
        let (peer, total) = (inbound.peer, inbound.total);
        let fits = total >= self.cfg.write_min && total <= capacity;
        let visible = inbound.is_put() && !self.cfg.errs(Mutation::OpenVisible);
        let fits = fits && inbound.own.is_none() && !visible;
        let paths = self.conn(peer).map_or(&[][..], |c| &c.paths);
        let ours = |local: u8| self.local.rails[local as usize].addr.writes();
        let able = paths.iter().filter(|p| p.to.writes() && ours(p.local));
        let rails = able.fold(0u32, |rails, p| rails | 1 << p.local);
        if !fits || rails == 0 || !self.cfg.reliable {
            return;
        }
        if let Some(inbound) = self.ops.inbounds.get_mut(key) {
            inbound.keys.asked = true;
        }
        self.events.push_back(Event::RegistrationWanted {
            inbound: key.name(),
            handle,
            offset: base,
            len: total,
            rails,
        });
    }

    /// Reports that the owner registered the memory of an inbound message on a local rail (after
    /// [`Event::RegistrationWanted`]). The key is sent with the message's grants.
    pub fn registered_on(&mut self, inbound: u64, rail: u8, rail_key: u64) {
        let key = Key::of(inbound);
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return; // its `Deregister` event is queued
        };
        inbound.keys.by_rail.push((rail, rail_key));
        let (peer, granted) = (inbound.peer, inbound.granted);
        if let Some(conn) = self.conn_mut(peer).filter(|_| granted > 0) {
            if !conn.tx.grants.contains(&key) {
                conn.tx.grants.push_back(key);
            }
            self.wake(peer);
        }
    }

    /// Adds the frames that precede a message's grant: its keys, and the segments already read;
    /// `false`: no room for all.
    pub(crate) fn push_keys(&self, key: Key, b: &mut Builder<'_, '_>) -> bool {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return true;
        };
        let keys = &inbound.keys.by_rail;
        let frame = |&(rail, key): &(u8, u64)| {
            Frame::Key(Rkey {
                number: inbound.number as u32,
                flags: inbound.kind_flag(),
                rail,
                key,
            })
        };
        let has = inbound.has_frame();
        let len: usize = keys.iter().map(|k| frame(k).head_len()).sum();
        let len = len + has.map_or(0, |has| has.head_len());
        if len > 0 && !b.writer.fits(len + GRANT_LEN, 0) {
            return false;
        }
        has.is_none_or(|has| b.control(&has, None))
            && keys.iter().all(|k| b.control(&frame(k), None))
    }

    /// Ends the keys of a message whose written bytes are retransmitted.
    pub(crate) fn deregister_now(&mut self, key: Key, memory: &mut impl Memory) {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        if !inbound.keys.by_rail.is_empty() && !self.cfg.errs(Mutation::WriteLate) {
            inbound.keys.by_rail.clear();
            memory.deregister(key.name());
        }
    }

    /// Ends a message's keys; must precede the end of the message or of its memory.
    pub(crate) fn end_keys(&mut self, key: Key, keys: &Keys) {
        if keys.asked && !self.cfg.errs(Mutation::KeepKeys) {
            self.events.push_back(Event::Deregister {
                inbound: key.name(),
            });
        }
    }

    /// Handles a write notification: the fragment has arrived if the bytes in its place have the
    /// correct sum.
    pub(crate) fn take_written(
        &mut self,
        now: u64,
        (peer, at): (PeerId, usize),
        header: &Header,
        w: &Written,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let reply = w.flags & FLAG_READ_REPLY != 0;
        let conn = self.conn(peer).ok_or(DropReason::Gone)?;
        let local = conn.paths[at].local;
        let number = conn.rx.expand(w.number);
        let key = match reply {
            true => conn.rx.pending_reads.get(&w.number),
            false => conn.rx.inbound.get(&number),
        };
        let Some(&key) = key else {
            // The message has ended, or never began.
            return match reply || number < conn.rx.next_match {
                true => {
                    self.on_duplicate(peer, at);
                    Ok(())
                }
                false => Err(DropReason::Invalid),
            };
        };
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return Ok(());
        };
        let (len, algorithm) = (w.len as u64, sums_of(header.algorithm, w.flags));
        let asked = inbound.keys.asked && inbound.total == w.total;
        let ungranted = w.offset + len > inbound.granted;
        if !asked || ungranted || !self.trusts_writes(local, algorithm) {
            return Err(inbound.no_place());
        }
        let (start, n) = (w.offset / BLOCK_BYTES, blocks(len));
        if inbound.set.covered(start, n) == Covered::All {
            self.on_duplicate(peer, at);
            return Ok(());
        }
        let landing = inbound.landing(key, w.offset, len);
        let sum = WrittenSum {
            rail: Some(local),
            inbound: key.name(),
            at: w.offset,
            len: w.len as usize,
            sum: w.sum,
            seed: sum_seed(header.src_id, w.number, reply, w.offset, w.len as usize),
            algorithm,
        };
        match memory.written(&landing, &sum) {
            WriteCheck::Wrong if !self.cfg.errs(Mutation::TrustWrites) => {
                self.stats.written_wrong += 1;
                Err(DropReason::CorruptPayload)
            }
            WriteCheck::Missing => {
                self.stats.written_lost += 1;
                Err(DropReason::Unwritten)
            }
            _ => {
                self.commit(now, key, start, n, len);
                if let Some(path) = self.conn_mut(peer).and_then(|c| c.paths.get_mut(at)) {
                    path.stats.bytes_received += len;
                }
                Ok(())
            }
        }
    }
}

/// Most bytes of one write, in whole blocks, on a rail with datagrams of `datagram` bytes.
fn span_max(rail: &RailSpec, datagram: usize) -> u64 {
    let room = match rail.direct_datagrams {
        0 if rail.addr.kind.spares_copies() => return SPAN_LONG,
        0 => return SPAN_MAX,
        n => (n * datagram).min(PACKET_MAX).saturating_sub(DIRECT_ROOM) as u64,
    };
    room / BLOCK_BYTES * BLOCK_BYTES
}
