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

use crate::base::mutation::Mutation;
use crate::base::side_work::OfferOut;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, sums_of, Event, Memory, PeerId, WriteCheck, WrittenSum};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::offer::{is_in, FirstOffer, PeerOffer, Pull, SegmentSum, Segments};
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Has, Inbound, InboundState, SendKind};
use crate::tx::packet_builder::Builder;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{
    blocks, Frame, Have, Header, Hello, Offer, BLOCK_BYTES, FLAG_PUT, FLAG_UNSUMMED, OFFER_LEN,
    RTS_LEN,
};

/// Longest message to advertise, in bytes. Its segments have 4 MiB, and each sum is computed with
/// the engine locked.
const OFFERED_MAX: u64 = 1 << 30;
/// Most offers in one packet: each needs a sum before the packet can leave.
const OFFERS_MAX: usize = 4;
/// Segments read at once: enough to keep a link busy while one is summed.
const READS_MAX: u8 = 3;

impl Node {
    /// Returns whether messages are read on a path: both rails must support it.
    fn reads_on(&self, path: &Path) -> bool {
        let rail = &self.local.rails[path.local as usize];
        let both = path.to.writes() && rail.addr.writes() && rail.ordered_writes;
        self.cfg.read_rails >> path.local & 1 == 1 && both && path.usable() && path.link.up
    }

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
        let path = own.chain(&conn.paths).find(|path| self.reads_on(path));
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
    /// Handles a peer's offer of a segment: the first, whose request follows in the packet, or a
    /// later one.
    pub(crate) fn on_offer(
        &mut self,
        now: u64,
        peer: PeerId,
        header: &Header,
        offer: &Offer,
        memory: &mut impl Memory,
    ) {
        if offer.segment == 0 {
            self.pending.offer_in = (offer.key != 0).then_some(FirstOffer {
                peer,
                offer: *offer,
                algorithm: header.algorithm,
                src_id: header.src_id,
            });
            return;
        }
        let Some(conn) = self.conn(peer) else { return };
        let key = conn.rx.inbound.get(&conn.rx.expand(offer.number)).copied();
        let inbound = key.and_then(|key| self.ops.inbounds.get_mut(key));
        let known = inbound.and_then(|inbound| inbound.offer.as_mut());
        if let (Some(key), Some(known)) = (key, known.filter(|_| offer.key != 0)) {
            known.tell(offer.segment as usize, (offer.sum, header.algorithm));
            self.pull_on(now, key, memory);
        }
    }

    /// The offer that preceded a request, if it belongs to this message of `total` bytes.
    pub(crate) fn offer_of(
        &mut self,
        peer: PeerId,
        number: u32,
        total: u64,
    ) -> Option<Box<PeerOffer>> {
        let first = self.pending.offer_in.take()?;
        let fits = first.peer == peer && first.offer.number == number && total > 0;
        fits.then(|| Box::new(PeerOffer::new(&first, self.segments(total))))
    }

    /// Starts reading a message that was just bound, if it was offered and fits its receive;
    /// `false`: grant it instead.
    pub(crate) fn pull(&mut self, key: Key) -> bool {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return false;
        };
        let (total, state) = (inbound.total, inbound.state);
        let Some(offer) = inbound.offer.as_mut() else {
            return false;
        };
        let fits = matches!(state, InboundState::Bound { capacity, .. } if total <= capacity);
        offer.pull = if fits { Pull::Reads } else { Pull::Over };
        let begun = fits && self.read_more(key);
        if let Some(inbound) = self.ops.inbounds.get_mut(key) {
            inbound.keys.asked |= begun;
            match inbound.offer.as_mut() {
                Some(offer) if !begun => offer.pull = Pull::Over,
                Some(_) | None => {}
            }
        }
        begun
    }

    /// Requests reads of the next segments, up to the limit. Returns whether any read is running.
    fn read_more(&mut self, key: Key) -> bool {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return false;
        };
        let (Some(offer), InboundState::Bound { handle, base, .. }) =
            (inbound.offer.as_deref(), inbound.state)
        else {
            return false;
        };
        let paths = self.conn(inbound.peer).map_or(&[][..], |conn| &conn.paths);
        let able = |path: &&Path| path.to.index == offer.rail && self.reads_on(path);
        let path = paths.iter().find(able);
        let link = path.and_then(|path| Some((path.local, path.link.id?)));
        let (total, number) = (inbound.total, inbound.number as u32);
        let (first, flags) = (offer.sum(0), inbound.head.map_or(0, |head| head.flags));
        let algorithm = first.map_or(0, |(_, algorithm)| sums_of(algorithm, flags));
        let Some(offer) = (self.ops.inbounds.get_mut(key)).and_then(|i| i.offer.as_mut()) else {
            return false;
        };
        let more = offer.pull == Pull::Reads && offer.next < offer.segments.count();
        if more && link.is_none() {
            offer.pull = Pull::Fails;
        }
        let (rail, link) = link.unwrap_or_default();
        while offer.reads_next(READS_MAX) {
            let (at, len) = offer.segments.range(offer.next);
            (offer.next, offer.reading) = (offer.next + 1, offer.reading + 1);
            self.events.push_back(Event::PullWanted {
                inbound: key.name(),
                handle,
                offset: base,
                total,
                at,
                len,
                rail,
                link,
                key: offer.key,
                sum: (
                    sum_seed(offer.src_id, number, false, at, len as usize),
                    algorithm,
                ),
            });
        }
        offer.reading > 0
    }

    /// Reports the end of the read of the segment at `at` ([`Event::PullWanted`]). `came`: the read
    /// succeeded; otherwise no byte of it lands any more.
    pub fn pull_over(
        &mut self,
        now_ns: u64,
        (inbound, at): (u64, u64),
        came: bool,
        memory: &mut impl Memory,
    ) {
        let now = now_ns.max(self.descheduled.last_poll_ns);
        let key = Key::of(inbound);
        let message = self.ops.inbounds.get_mut(key);
        let offer = message.and_then(|message| message.offer.as_mut());
        if let Some(offer) = offer.filter(|offer| offer.is_read()) {
            offer.read_over(at, came);
            self.pull_on(now, key, memory);
        }
    }

    /// Continues a message that is being read: verifies segments and requests further reads. When
    /// none is running any more, the message is complete or is granted.
    fn pull_on(&mut self, now: u64, key: Key, memory: &mut impl Memory) {
        let inbound = self.ops.inbounds.get(key);
        let offer = inbound.and_then(|inbound| inbound.offer.as_deref());
        if !offer.is_some_and(PeerOffer::is_read) {
            return;
        }
        self.judge_segments(now, key, memory);
        self.read_more(key);
        let inbound = self.ops.inbounds.get_mut(key);
        let Some(offer) = inbound.and_then(|inbound| inbound.offer.as_mut()) else {
            return;
        };
        if offer.whole() {
            offer.pull = Pull::Over;
            self.pulled(key);
        } else if offer.has_failed() {
            offer.pull = Pull::Over;
            self.grant_rest(now, key, memory);
        }
    }

    /// Verifies the segments that were read and whose sums are known.
    fn judge_segments(&mut self, now: u64, key: Key, memory: &mut impl Memory) {
        let early = self.cfg.errs(Mutation::PullEarly);
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let flags = inbound.head.map_or(0, |head| head.flags);
        let unsummed = flags & FLAG_UNSUMMED != 0 || early;
        let Some(offer) = inbound.offer.as_deref() else {
            return;
        };
        let sum = |n: usize| offer.sum(n).or(unsummed.then_some((0, 0)));
        let due = offer.unjudged().filter_map(|n| Some((n, sum(n)?)));
        let due: Vec<(usize, SegmentSum)> = due.collect();
        for (segment, sum) in due {
            let Some(inbound) = self.ops.inbounds.get(key) else {
                return;
            };
            let (at, len) = self.segments(inbound.total).range(segment);
            let right = early || self.is_right((key, inbound), (at, len), sum, memory);
            let (peer, number) = (inbound.peer, inbound.number as u32);
            let Some(inbound) = self.ops.inbounds.get_mut(key) else {
                return;
            };
            if let Some(offer) = inbound.offer.as_mut() {
                offer.judge(segment, right);
            }
            if right {
                inbound.set.insert(at / BLOCK_BYTES, blocks(len));
                inbound.last_data_ns = now;
                let pulled = Event::Pulled {
                    peer,
                    number,
                    at,
                    len,
                };
                self.events.push_back(pulled);
            }
        }
    }

    /// Returns whether the bytes in a segment's place have its sum.
    fn is_right(
        &self,
        (key, inbound): (Key, &Inbound),
        (at, len): (u64, u64),
        (sum, algorithm): SegmentSum,
        memory: &mut impl Memory,
    ) -> bool {
        let src_id = inbound.offer.as_deref().map_or(0, |offer| offer.src_id);
        let flags = inbound.head.map_or(0, |head| head.flags);
        let sum = WrittenSum {
            rail: None,
            inbound: key.name(),
            at,
            len: len as usize,
            sum,
            seed: sum_seed(src_id, inbound.number as u32, false, at, len as usize),
            algorithm: sums_of(algorithm, flags),
        };
        let found = memory.written(&inbound.landing(key, at, len), &sum);
        found == WriteCheck::Right || self.cfg.errs(Mutation::TrustReads)
    }

    /// Completes a message that was read, and tells its sender.
    fn pulled(&mut self, key: Key) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        debug_assert!(inbound.set.count() * BLOCK_BYTES >= inbound.total);
        let (peer, number) = (inbound.peer, inbound.number as u32);
        self.stats.pulled += 1;
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.tx
                .control
                .push_back(FrameRef::EmptyGrant { number, flags: 0 });
            self.run_queue.mark_ready(conn);
        }
        self.finish_if_complete(key);
    }

    /// Grants the parts of a message that could not be read.
    fn grant_rest(&mut self, now: u64, key: Key, memory: &mut impl Memory) {
        self.stats.pulls_failed += 1;
        if let Some(message) = self.ops.inbounds.get_mut(key) {
            message.keys.by_rail.clear();
        }
        memory.deregister(key.name());
        if self.local.writes {
            self.want_keys(key);
        }
        self.want_grant(key, now);
    }

    /// The first unread range (start, end) of an inbound message at or after `from`.
    pub fn unread(&self, inbound: u64, from: u64) -> Option<(u64, u64)> {
        let inbound = self.ops.inbounds.get(Key::of(inbound))?;
        match inbound.offer.as_deref() {
            Some(offer) => offer.segments.first_outside(&offer.here, from),
            None => (from < inbound.total).then_some((from, inbound.total)),
        }
    }
}

impl Inbound {
    /// The frame, sent before the message's grants, that reports the segments already read.
    pub(crate) fn has_frame(&self) -> Option<Frame<Hello<'static>>> {
        let offer = self.offer.as_deref()?;
        let has = Frame::Have(Have {
            number: self.number as u32,
            segments: offer.here,
        });
        offer.here.iter().any(|word| *word != 0).then_some(has)
    }
}
