//! Rendezvous by remote read: the sender advertises an rkey of its memory, the receiver reads it.
//!
//! An [`Offer`] precedes a rendezvous request in the same packet: the rkey of the message's memory
//! on one rail, and the sum of the first segment. If the receiver has that rail and room for the
//! whole message, its owner reads it ([`Event::PullWanted`]), segment by segment, and no grant is
//! sent. The sums of the other segments follow once the request is acknowledged, one per packet, so
//! that each packet waits for the computation of one sum only.
//!
//! A segment has arrived when its read is over ([`Node::pull_over`]) and its sum is correct. When
//! all segments have arrived, the message is complete, and an empty grant, retransmitted until
//! acknowledged, tells the sender that nothing more is wanted. Only then does the send end; its
//! memory is closed first.
//!
//! In all other cases (no connection, a read that fails, breaks or does not end, a wrong sum) the
//! receiver ends the reads, reports the segments that it has ([`Have`]), and grants the message;
//! the sender skips those segments. A receiver without the offer grants everything: the first offer
//! is not retransmitted with its request.
//!
//! - No byte of a read lands after the message has ended or is granted: its keys end first
//!   ([`Event::Deregister`], [`Memory::deregister`]).
//! - No read byte is overwritten: when a message's keys are sent, the segments already read are
//!   reported with them.
//! - The sender's memory is closed before its send ends, however it ends; later reads are refused.

use crate::base::side_work::OfferOut;
use crate::base::slab::Key;
use crate::base::types::{Memory, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::offer::{is_in, Segments};
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Has, SendKind};
use crate::tx::packet_builder::Builder;
use marline_wire::{
    blocks, Frame, Have, Header, Hello, Offer, BLOCK_BYTES, FLAG_PUT, FLAG_UNSUMMED, OFFER_LEN,
    RTS_LEN,
};

/// Longest message to advertise, in bytes. Its segments have 4 MiB, and each sum is computed with
/// the engine locked.
const OFFERED_MAX: u64 = 1 << 30;
/// Most offers in one packet: each needs a sum before the packet can leave.
const OFFERS_MAX: usize = 4;

impl Node {
    fn segments(&self, total: u64) -> Segments {
        Segments::of(total, self.cfg.segment_min)
    }
}

/// The sender.
impl Node {
    /// Adds the offer of a message, before its request in the same packet, if the message is
    /// suitable and both frames fit.
    pub(crate) fn push_offer(&mut self, conn: &Conn, at: usize, key: Key, b: &mut Builder<'_, '_>) {
        let none = self.cfg.read_rails == 0 || !self.cfg.reliable;
        if none || self.pending.offers_out.len() == OFFERS_MAX {
            return;
        }
        let Some(send) = self.ops.sends.get(key) else {
            return;
        };
        let head = send.head;
        let long = self.cfg.write_min <= head.total && head.total <= OFFERED_MAX;
        let plain = head.flags & FLAG_PUT == 0 && send.kind == SendKind::Queued;
        let own = core::iter::once(&conn.paths[at]);
        let path = own
            .chain(&conn.paths)
            .find(|path| self.local.reads_on(&self.cfg, path));
        let Some(path) = path.filter(|_| long && plain && conn.session.hello_acked) else {
            return;
        };
        let rail = path.local;
        if !b.writer.fits(OFFER_LEN + RTS_LEN, 0) || !self.push_segment((key, rail), 0, b) {
            return;
        }
        if let Some(send) = self.ops.sends.get_mut(key) {
            send.offered = Some((rail, 1));
        }
        if self.segments(head.total).count() > 1 {
            b.flags |= Header::FLAG_ACK_NOW; // the other sums wait for this ack
        }
    }

    /// Adds the offer of a segment; `false`: no room.
    fn push_segment(
        &mut self,
        (key, rail): (Key, u8),
        segment: u8,
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let Some(send) = self.ops.sends.get(key) else {
            return true;
        };
        let number = send.head.number;
        let frame: Frame<Hello<'_>> = Frame::Offer(Offer {
            number,
            segment,
            rail,
            key: 0,
            sum: 0,
        });
        let Some(slot) = b.writer.push(&frame) else {
            return false;
        };
        let total = send.head.total;
        let (at, len) = self.segments(total).range(segment as usize);
        self.pending.offers_out.push(OfferOut {
            handle: send.handle,
            rail,
            total,
            at,
            len,
            sum_at: slot.sum_at as usize,
            summed: send.head.flags & FLAG_UNSUMMED == 0,
            message: (self.local.id, number),
        });
        true
    }

    /// Handles the ack of a message's request: queues the offers of the segments after the first.
    pub(crate) fn request_heard(&mut self, peer: PeerId, key: Key) {
        let least = self.cfg.segment_min;
        let send = self.ops.sends.get_mut(key).filter(|send| !send.granted);
        let Some((send, (rail, 1))) = send.and_then(|s| s.offered.map(|offered| (s, offered)))
        else {
            return;
        };
        let more = Segments::of(send.head.total, least).count() > 1;
        if !more || send.head.flags & FLAG_UNSUMMED != 0 {
            return;
        }
        send.offered = Some((rail, 2));
        if let Some(conn) = self.directory.conn_mut(peer) {
            let frame = FrameRef::Offer {
                xfer: key,
                segment: 1,
            };
            conn.tx.control.push_back(frame);
            self.run_queue.mark_ready(conn);
        }
    }

    /// Adds the offer of a later segment, and queues the next one; `false`: no room.
    pub(crate) fn add_segment(
        &mut self,
        conn: &mut Conn,
        xfer: Key,
        segment: u8,
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let send = self.ops.sends.get(xfer).filter(|send| !send.granted);
        let Some((send, (rail, told))) = send.and_then(|s| s.offered.map(|offered| (s, offered)))
        else {
            return true; // ended or granted
        };
        let count = self.segments(send.head.total).count();
        let no_room = !self.pending.offers_out.is_empty();
        if no_room || !self.push_segment((xfer, rail), segment, b) {
            return false;
        }
        b.frames.push(FrameRef::Offer { xfer, segment });
        if (told as usize) < count && told == segment as u16 + 1 {
            let frame = FrameRef::Offer {
                xfer,
                segment: segment + 1,
            };
            conn.tx.control.push_back(frame);
            if let Some(send) = self.ops.sends.get_mut(xfer) {
                send.offered = Some((rail, told + 1));
            }
        }
        true
    }

    /// An offer in the packet that `poll_transmit` has just built; its key and sum must be filled
    /// in.
    #[inline]
    pub fn take_offer(&mut self) -> Option<OfferOut> {
        self.pending.offers_out.pop()
    }

    /// Marks the segments that the receiver of a message has read: they are not sent.
    pub(crate) fn on_have(&mut self, peer: PeerId, have: &Have) {
        let least = self.cfg.segment_min;
        let Some(conn) = self.conn(peer) else { return };
        let key = conn.tx.rendezvous.get(&have.number).copied();
        let Some(send) = key.and_then(|key| self.ops.sends.get_mut(key)) else {
            return;
        };
        if send.granted || send.offered.is_none() {
            return;
        }
        let segments = Segments::of(send.head.total, least);
        for n in (0..segments.count()).filter(|&n| is_in(&have.segments, n)) {
            let (at, len) = segments.range(n);
            send.acked.insert(at / BLOCK_BYTES, blocks(len));
        }
        send.keys.get_or_insert_default().has = Some(Has {
            segments,
            here: have.segments,
            upto: 0,
        });
    }
}

/// The receiver.
impl Node {
    /// Reports the end of the read of the segment at `at` ([`Event::PullWanted`]). `came`: the read
    /// succeeded; otherwise no byte of it lands any more.
    pub fn pull_over(
        &mut self,
        now_ns: u64,
        segment: (u64, u64),
        came: bool,
        memory: &mut impl Memory,
    ) {
        let (incoming, mut ctx) = self.incoming();
        incoming.pull_over(&mut ctx, now_ns, segment, came, memory);
    }

    /// The first unread range (start, end) of an inbound message at or after `from`.
    pub fn unread(&self, inbound: u64, from: u64) -> Option<(u64, u64)> {
        self.incoming.unread(inbound, from)
    }
}
