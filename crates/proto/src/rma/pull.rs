//! Rendezvous by remote read: the sender offers its memory, the receiver reads it.
//!
//! In front of a rendezvous request, in the same packet, goes an [`Offer`]: the key of the
//! message's memory on one rail, and the sum of all of it. A receiver that has a place for the
//! whole message, and that rail, has its owner read ([`Event::PullWanted`]) instead of granting.
//! When the read is over ([`Node::pull_over`]) and what lies there has the right sum, the message
//! is complete, and its sender hears that nothing more is wanted: an empty grant, which is said
//! again until it is acknowledged. Only then does the send end, and its memory is closed before.
//!
//! Whatever else happens (no connection, a read that fails, breaks or does not end, a wrong sum)
//! the receiver ends the read, and then grants as if there had been no offer. So is it where the
//! offer was lost: it is not sent again with its request.
//!
//! - No byte of a read lands after the message has ended, or is granted: its keys end first
//!   ([`Event::Deregister`], [`Memory::deregister`]).
//! - The sender's memory is closed before its send ends, however it does; a read that comes later
//!   is refused.

use crate::base::beside::OfferOut;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, sums_of, Event, Memory, PeerId, WriteCheck, WrittenSum};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{InboundState, PeerOffer, SendKind};
use crate::tx::packet_builder::Builder;
use alloc::boxed::Box;
use marline_wire::{
    granules, Frame, Header, Offer, FLAG_PUT, FLAG_UNSUMMED, GRANULE, OFFER_LEN, RTS_LEN,
};

/// Longest message that is offered, in bytes: its sum is made before its request leaves.
const OFFERED_MAX: u64 = 4 << 20;

impl Node {
    /// Returns whether messages are read on a path between two rails that can.
    fn reads_on(&self, path: &Path) -> bool {
        let rail = &self.local.rails[path.local as usize];
        let both = path.to.writes() && rail.addr.writes() && rail.ordered_writes;
        self.cfg.read_rails >> path.local & 1 == 1 && both && path.usable() && path.link.up
    }
}

/// The sender.
impl Node {
    /// Adds the offer of a message whose request is about to leave in the packet, if it is worth
    /// one and both fit.
    pub(crate) fn push_offer(&mut self, conn: &Conn, at: usize, key: Key, b: &mut Builder<'_, '_>) {
        if self.cfg.read_rails == 0 || self.pending.offer_out.is_some() || !self.cfg.reliable {
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
        if !b.writer.fits(OFFER_LEN + RTS_LEN, 0) {
            return;
        }
        let frame = Frame::Offer(Offer {
            number: head.number,
            rail: path.local,
            key: 0,
            sum: 0,
        });
        let Some(slot) = b.writer.push(&frame) else {
            return;
        };
        self.pending.offer_out = Some(OfferOut {
            handle: send.handle,
            rail: path.local,
            len: head.total,
            sum_at: slot.sum_at as usize,
            seed: sum_seed(self.local.id, head.number, false, 0, head.total as usize),
            summed: head.flags & FLAG_UNSUMMED == 0,
        });
    }

    /// The offer in the packet that `poll_transmit` has just made: its key and sum are still to be
    /// filled in.
    pub fn take_offer(&mut self) -> Option<OfferOut> {
        self.pending.offer_out.take()
    }
}

/// The receiver.
impl Node {
    /// A peer offers the memory of the message whose request follows.
    pub(crate) fn on_offer(&mut self, peer: PeerId, header: &Header, offer: &Offer) {
        self.pending.offer_in = (offer.key != 0).then_some(PeerOffer {
            peer,
            offer: *offer,
            algorithm: header.algorithm,
            src_id: header.src_id,
            under_way: false,
        });
    }

    /// The offer that came before a request.
    pub(crate) fn offer_of(&mut self, peer: PeerId, number: u32) -> Option<Box<PeerOffer>> {
        let offer = self.pending.offer_in.take()?;
        let fits = offer.peer == peer && offer.offer.number == number;
        fits.then(|| Box::new(offer))
    }

    /// Has the owner read a message that was just bound, if it was offered and there is a place for
    /// all of it; else it is granted.
    pub(crate) fn pull(&mut self, key: Key) -> bool {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return false;
        };
        let (
            Some(offer),
            InboundState::Bound {
                handle,
                base,
                capacity,
            },
        ) = (inbound.offer.as_deref(), inbound.state)
        else {
            return false;
        };
        let (total, told) = (inbound.total, offer.offer);
        let paths = self.conn(inbound.peer).map_or(&[][..], |conn| &conn.paths);
        let able = |path: &&Path| path.to.index == told.rail && self.reads_on(path);
        let path = paths.iter().find(able).filter(|_| total <= capacity);
        let link = path.and_then(|path| Some((path.local, path.link.id?)));
        let Some((rail, link)) = link else {
            return false;
        };
        if let Some(inbound) = self.ops.inbounds.get_mut(key) {
            inbound.keys.asked = true;
            if let Some(offer) = inbound.offer.as_mut() {
                offer.under_way = true;
            }
        }
        self.events.push_back(Event::PullWanted {
            inbound: key.name(),
            handle,
            offset: base,
            len: total,
            rail,
            link,
            key: told.key,
        });
        true
    }

    /// The owner has read a message ([`Event::PullWanted`]), or could not (`came` is false):
    /// nothing of that read lands any more.
    pub fn pull_over(&mut self, now_ns: u64, inbound: u64, came: bool, memory: &mut impl Memory) {
        let now = now_ns.max(self.absences.last_poll_ns);
        let key = Key::of(inbound);
        let Some(message) = self.ops.inbounds.get_mut(key) else {
            return; // over
        };
        let Some(offer) = message.offer.take_if(|offer| offer.under_way) else {
            return;
        };
        if came && self.pulled_right(key, &offer, memory) {
            return self.pulled(now, key);
        }
        self.stats.pulls_failed += 1;
        if let Some(message) = self.ops.inbounds.get_mut(key) {
            message.keys.by_rail.clear();
        }
        memory.deregister(inbound);
        if self.local.writes {
            self.want_keys(key);
        }
        self.want_grant(key, now);
    }

    /// Returns whether the message lies in its place.
    fn pulled_right(&self, key: Key, offer: &PeerOffer, memory: &mut impl Memory) -> bool {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return false;
        };
        let (number, total) = (offer.offer.number, inbound.total);
        let flags = inbound.head.map_or(0, |head| head.flags);
        let sum = WrittenSum {
            inbound: key.name(),
            at: 0,
            len: total as usize,
            sum: offer.offer.sum,
            seed: sum_seed(offer.src_id, number, false, 0, total as usize),
            algorithm: sums_of(offer.algorithm, flags),
        };
        let found = memory.written(&inbound.landing(key, 0, total), &sum);
        found == WriteCheck::Right || self.cfg.errs(Mutation::PullEarly)
    }

    /// All of a message was read: its sender is told, and it is complete.
    fn pulled(&mut self, now: u64, key: Key) {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        let (peer, number, len) = (inbound.peer, inbound.number as u32, inbound.total);
        inbound.set.insert(0, granules(len));
        inbound.last_data_ns = now;
        debug_assert!(inbound.set.count() * GRANULE >= len);
        self.stats.pulled += 1;
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.tx
                .control
                .push_back(FrameRef::EmptyGrant { number, flags: 0 });
            self.agenda.mark_ready(conn);
        }
        self.events.push_back(Event::Pulled { peer, number, len });
        self.finish_if_complete(key);
    }
}
