//! Receiving half of rendezvous by remote read: reads the segments of an advertised message,
//! verifies their sums, and grants the segments that could not be read (see [`crate::rma::pull`]
//! for the whole).

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, sums_of, Event, Memory, PeerId, WriteCheck, WrittenSum};
use crate::incoming::messages::Incoming;
use crate::state::advertisement::{
    FirstAdvertisement, PeerAdvertisement, Pull, SegmentSum, Segments,
};
use crate::state::context::Context;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState};
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{blocks, Advertisement, Frame, Have, Header, Hello, BLOCK_BYTES, FLAG_UNSUMMED};

/// Segments read at once: the link stays busy while one of them is summed.
const READS_MAX: u8 = 3;

impl Incoming {
    /// Handles a peer's advertisement of a segment: the first, whose request is in the packet, or a
    /// later one.
    pub(crate) fn on_advertisement(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        peer: PeerId,
        header: &Header,
        advertisement: &Advertisement,
        memory: &mut impl Memory,
    ) {
        if advertisement.segment == 0 {
            self.advertisement_in = (advertisement.key != 0).then_some(FirstAdvertisement {
                peer,
                advertisement: *advertisement,
                algorithm: header.algorithm,
                src_id: header.src_id,
            });
            return;
        }
        let Some(conn) = ctx.conn(peer) else { return };
        let key = conn
            .rx
            .inbound
            .get(&conn.rx.expand(advertisement.number))
            .copied();
        let inbound = key.and_then(|key| self.inbounds.get_mut(key));
        let known = inbound.and_then(|inbound| inbound.advertisement.as_mut());
        if let (Some(key), Some(known)) = (key, known.filter(|_| advertisement.key != 0)) {
            known.set_sum(
                advertisement.segment as usize,
                (advertisement.sum, header.algorithm),
            );
            self.pull_on(ctx, now, key, memory);
        }
    }

    /// The advertisement that came before this request, if it belongs to the request's message of
    /// `total` bytes.
    pub(crate) fn advertisement_of(
        &mut self,
        peer: PeerId,
        number: u32,
        total: u64,
        segment_min: u64,
    ) -> Option<Box<PeerAdvertisement>> {
        let first = self.advertisement_in.take()?;
        let fits = first.peer == peer && first.advertisement.number == number && total > 0;
        fits.then(|| {
            Box::new(PeerAdvertisement::new(
                &first,
                Segments::of(total, segment_min),
            ))
        })
    }

    /// Starts to read a message that was just bound to a receive, if it was advertised and fits the
    /// receive; `false`: the message must be granted instead.
    pub(crate) fn pull(&mut self, ctx: &mut Context<'_>, key: Key) -> bool {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return false;
        };
        let (total, state) = (inbound.total, inbound.state);
        let Some(advertisement) = inbound.advertisement.as_mut() else {
            return false;
        };
        let fits = matches!(state, InboundState::Bound { capacity, .. } if total <= capacity);
        advertisement.pull = if fits { Pull::Reads } else { Pull::Over };
        let begun = fits && self.read_more(ctx, key);
        if let Some(inbound) = self.inbounds.get_mut(key) {
            inbound.keys.asked |= begun;
            match inbound.advertisement.as_mut() {
                Some(advertisement) if !begun => advertisement.pull = Pull::Over,
                Some(_) | None => {}
            }
        }
        begun
    }

    /// Requests reads of the next segments, up to the limit. Returns whether any read is running.
    fn read_more(&mut self, ctx: &mut Context<'_>, key: Key) -> bool {
        let Some(inbound) = self.inbounds.get(key) else {
            return false;
        };
        let (Some(advertisement), InboundState::Bound { handle, base, .. }) =
            (inbound.advertisement.as_deref(), inbound.state)
        else {
            return false;
        };
        let paths = ctx.conn(inbound.peer).map_or(&[][..], |conn| &conn.paths);
        let able =
            |path: &&Path| path.to.index == advertisement.rail && ctx.local.reads_on(ctx.cfg, path);
        let path = paths.iter().find(able);
        let link = path.and_then(|path| Some((path.local, path.link.id?)));
        let (total, number) = (inbound.total, inbound.number as u32);
        let (first, flags) = (
            advertisement.sum(0),
            inbound.head.map_or(0, |head| head.flags),
        );
        let algorithm = first.map_or(0, |(_, algorithm)| sums_of(algorithm, flags));
        let Some(advertisement) =
            (self.inbounds.get_mut(key)).and_then(|i| i.advertisement.as_mut())
        else {
            return false;
        };
        let more = advertisement.pull == Pull::Reads
            && advertisement.next < advertisement.segments.count();
        if more && link.is_none() {
            advertisement.pull = Pull::Fails;
        }
        let (rail, link) = link.unwrap_or_default();
        while advertisement.reads_next(READS_MAX) {
            let (at, len) = advertisement.segments.range(advertisement.next);
            (advertisement.next, advertisement.reading) =
                (advertisement.next + 1, advertisement.reading + 1);
            ctx.events.push_back(Event::PullWanted {
                inbound: key.name(),
                handle,
                offset: base,
                total,
                at,
                len,
                rail,
                link,
                key: advertisement.key,
                sum: (
                    sum_seed(advertisement.src_id, number, false, at, len as usize),
                    algorithm,
                ),
            });
        }
        advertisement.reading > 0
    }

    /// Handles the end of the read of the segment at `at` ([`Event::PullWanted`]). `came`: the read
    /// succeeded; otherwise no byte of it lands any more.
    pub fn pull_over(
        &mut self,
        ctx: &mut Context<'_>,
        now_ns: u64,
        (inbound, at): (u64, u64),
        came: bool,
        memory: &mut impl Memory,
    ) {
        let now = now_ns.max(ctx.descheduled.last_poll_ns);
        let key = Key::of(inbound);
        let message = self.inbounds.get_mut(key);
        let advertisement = message.and_then(|message| message.advertisement.as_mut());
        if let Some(advertisement) = advertisement.filter(|advertisement| advertisement.is_read()) {
            advertisement.read_over(at, came);
            self.pull_on(ctx, now, key, memory);
        }
    }

    /// Continues a message that is being read: verifies segments and requests further reads. After
    /// the last read the message is complete, or its missing parts are granted.
    fn pull_on(&mut self, ctx: &mut Context<'_>, now: u64, key: Key, memory: &mut impl Memory) {
        let inbound = self.inbounds.get(key);
        let advertisement = inbound.and_then(|inbound| inbound.advertisement.as_deref());
        if !advertisement.is_some_and(PeerAdvertisement::is_read) {
            return;
        }
        self.judge_segments(ctx, now, key, memory);
        self.read_more(ctx, key);
        let inbound = self.inbounds.get_mut(key);
        let Some(advertisement) = inbound.and_then(|inbound| inbound.advertisement.as_mut()) else {
            return;
        };
        if advertisement.whole() {
            advertisement.pull = Pull::Over;
            self.pulled(ctx, key);
        } else if advertisement.has_failed() {
            advertisement.pull = Pull::Over;
            self.grant_rest(ctx, now, key, memory);
        }
    }

    /// Verifies the segments that were read and whose sums are known.
    fn judge_segments(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        key: Key,
        memory: &mut impl Memory,
    ) {
        let early = ctx.cfg.errs(Mutation::PullEarly);
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        let flags = inbound.head.map_or(0, |head| head.flags);
        let unsummed = flags & FLAG_UNSUMMED != 0 || early;
        let Some(advertisement) = inbound.advertisement.as_deref() else {
            return;
        };
        let sum = |n: usize| advertisement.sum(n).or(unsummed.then_some((0, 0)));
        let due = advertisement
            .unverified()
            .filter_map(|n| Some((n, sum(n)?)));
        let due: Vec<(usize, SegmentSum)> = due.collect();
        for (segment, sum) in due {
            let Some(inbound) = self.inbounds.get(key) else {
                return;
            };
            let (at, len) = Segments::of(inbound.total, ctx.cfg.segment_min).range(segment);
            let right = early || Incoming::is_right(ctx, (key, inbound), (at, len), sum, memory);
            let (peer, number) = (inbound.peer, inbound.number as u32);
            let Some(inbound) = self.inbounds.get_mut(key) else {
                return;
            };
            if let Some(advertisement) = inbound.advertisement.as_mut() {
                advertisement.judge(segment, right);
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
                ctx.events.push_back(pulled);
            }
        }
    }

    /// Returns whether the bytes in a segment's place have the segment's sum.
    fn is_right(
        ctx: &Context<'_>,
        (key, inbound): (Key, &Inbound),
        (at, len): (u64, u64),
        (sum, algorithm): SegmentSum,
        memory: &mut impl Memory,
    ) -> bool {
        let src_id = inbound
            .advertisement
            .as_deref()
            .map_or(0, |advertisement| advertisement.src_id);
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
        found == WriteCheck::Right || ctx.cfg.errs(Mutation::TrustReads)
    }

    /// Completes a message whose segments were all read, and tells its sender.
    fn pulled(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        debug_assert!(inbound.set.count() * BLOCK_BYTES >= inbound.total);
        let (peer, number) = (inbound.peer, inbound.number as u32);
        ctx.stats.pulled += 1;
        if let Some(conn) = ctx.directory.conn_mut(peer) {
            conn.tx
                .control
                .push_back(FrameRef::EmptyGrant { number, flags: 0 });
            ctx.run_queue.mark_ready(conn);
        }
        self.finish_if_complete(ctx, key);
    }

    /// Grants the parts of a message that could not be read.
    fn grant_rest(&mut self, ctx: &mut Context<'_>, now: u64, key: Key, memory: &mut impl Memory) {
        ctx.stats.pulls_failed += 1;
        if let Some(message) = self.inbounds.get_mut(key) {
            message.keys.by_rail.clear();
        }
        memory.deregister(key.name());
        if ctx.local.writes {
            self.want_keys(ctx, key);
        }
        self.grants.want(&mut self.inbounds, ctx, key, now);
    }

    /// The peer that sends an inbound message.
    pub(crate) fn sender_of(&self, inbound: u64) -> Option<PeerId> {
        Some(self.inbounds.get(Key::of(inbound))?.peer)
    }

    /// The first unread range (start, end) of an inbound message at or after `from`.
    pub fn unread(&self, inbound: u64, from: u64) -> Option<(u64, u64)> {
        let inbound = self.inbounds.get(Key::of(inbound))?;
        match inbound.advertisement.as_deref() {
            Some(advertisement) => advertisement
                .segments
                .first_outside(&advertisement.here, from),
            None => (from < inbound.total).then_some((from, inbound.total)),
        }
    }
}

impl Inbound {
    /// The frame, sent before the message's grants, that reports the segments already read.
    pub(crate) fn has_frame(&self) -> Option<Frame<Hello<'static>>> {
        let advertisement = self.advertisement.as_deref()?;
        let has = Frame::Have(Have {
            number: self.number as u32,
            segments: advertisement.here,
        });
        advertisement
            .here
            .iter()
            .any(|word| *word != 0)
            .then_some(has)
    }
}
