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

use crate::base::side_work::WriteOut;
use crate::base::types::{sum_seed, PathState, PeerId, Spans, Transmit};
use crate::node::Node;
use crate::outgoing::writes::NextWrite;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::write_span::DIRECT_PACKET_MAX;
use alloc::boxed::Box;
use marline_wire::{Frame, Header, RailWrites, Written, FLAG_READ_REPLY, FLAG_UNSUMMED};

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
        let (cfg, local) = (&self.cfg, &self.local);
        let next = self.outgoing.next_write(cfg, local, conn, at)?;
        if !conn.paths[at].link.write_turn() {
            return None;
        }
        let NextWrite {
            key, offset, len, ..
        } = next;
        let send = self.outgoing.get(key)?;
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
        let (most, no_hello) = (conn.paths[at].datagram_max(), conn.session.needs_no_hello());
        let limit = most.min(if no_hello { DIRECT_PACKET_MAX } else { most });
        let mut b = self.begin(conn, limit, out, spans);
        if no_hello {
            b.add_acks(&mut self.context(), now, conn, at);
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
        self.outgoing.set_write(WriteOut {
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
        self.outgoing.advance(key, offset + len);
        self.outgoing.leave_bulk(conn, key);
        self.stats.written += 1;
        self.finish(now, conn, at, b, false, false)
    }

    /// Sets the number of datagrams of a direct write that a rail supports; 0: no direct writes.
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

    /// The write that belongs to the packet that `poll_transmit` has just built
    /// ([`Transmit::written`]).
    pub fn take_write(&mut self) -> Option<WriteOut> {
        self.outgoing.take_write()
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
