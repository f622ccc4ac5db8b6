//! Incoming messages: stores their fragments and matches their heads in order.

use crate::base::blocks::Covered;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{DropReason, Landing, Memory, PeerId};
use crate::incoming::fragment::Fragment;
use crate::incoming::messages::Incoming;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::credit::Credit;
use crate::state::transfer::{is_matched, is_rpc, new_inbound, InboundState};
use marline_wire::{blocks, MsgHead, BLOCK_BYTES, FLAG_TAGGED};

/// Largest message without a grant.
const EAGER_LIMIT: u64 = 65_536;
/// Multiple of the bound on unexpected memory that eager messages may fill. Senders stay within
/// their credit, but credit may have been granted before memory ran short.
const EAGER_BOUNDS: u64 = 2;
/// Multiple of that bound up to which requests are taken. It is larger, since the message that a
/// full receiver waits for may be among the requests.
const REQUEST_BOUNDS: u64 = 3;

impl Incoming {
    /// Finds or creates the inbound message of a fragment; `None`: the message ended long ago.
    fn inbound_of(
        &mut self,
        ctx: &mut Context<'_>,
        peer: PeerId,
        f: &Fragment<'_>,
    ) -> Result<Option<Key>, DropReason> {
        let conn = ctx.conn(peer).ok_or(DropReason::Gone)?;
        if f.reply {
            return Ok(conn.rx.pending_reads.get(&f.number).copied());
        }
        let number = conn.rx.expand(f.number);
        if let Some(&key) = conn.rx.inbound.get(&number) {
            return Ok(Some(key));
        }
        if number < conn.rx.next_match && !ctx.cfg.errs(Mutation::ForgetMessages) {
            return Ok(None);
        }
        let credited = conn.had_credit_for(number) || ctx.cfg.errs(Mutation::TrustCredit);
        if !credited || f.total > EAGER_LIMIT {
            return Err(DropReason::Invalid);
        }
        let cost = Credit::cost(f.total);
        let head = f.head.as_ref();
        let share = ctx.has_share(peer, cost) || self.is_awaited(ctx, peer, number, head);
        let room = share && ctx.has_room(cost, EAGER_BOUNDS);
        if !room && !ctx.cfg.errs(Mutation::Hoard) {
            return Err(DropReason::NoMemory);
        }
        let mut inbound = new_inbound(peer, number, f.total, InboundState::Held);
        inbound.charged = ctx.cfg.charged(cost);
        inbound.credit = cost;
        ctx.charge(peer, inbound.charged);
        let key = self.inbounds.insert(inbound);
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.rx.inbound.insert(number, key);
        }
        ctx.use_credit(peer, cost);
        Ok(Some(key))
    }

    /// Returns whether the peer's next message in order is awaited: messages after it have arrived,
    /// or a posted receive accepts it. A stranger's is held even beyond the memory of strangers,
    /// one for each, since what fills that memory may wait for it.
    #[cold]
    fn is_awaited(
        &mut self,
        ctx: &Context<'_>,
        peer: PeerId,
        number: u64,
        head: Option<&MsgHead>,
    ) -> bool {
        let Some(conn) = ctx.conn(peer).filter(|c| c.rx.next_match == number) else {
            return false;
        };
        let later = conn.rx.inbound.range(number + 1..).next().is_some();
        let message = head.filter(|head| is_matched(head));
        later || message.is_some_and(|head| self.receives.locate(peer, head).is_some())
    }

    pub(crate) fn take_fragment(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        peer: PeerId,
        at: usize,
        mut f: Fragment<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        if let Some(done) = self.take_single(ctx, now, peer, &f, memory) {
            return done;
        }
        let Some(key) = self.inbound_of(ctx, peer, &f)? else {
            ctx.note_duplicate(peer, at);
            return Ok(());
        };
        if let Some(head) = f.head {
            self.on_head(ctx, now, peer, key, &head);
        }
        if f.deregisters {
            if let Some(inbound) = self.inbounds.get_mut(key) {
                inbound.deregister(ctx.cfg, key, memory);
            }
        }
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return Ok(());
        };
        let len = f.payload.bytes.len() as u64;
        let (start, n) = (f.offset / BLOCK_BYTES, blocks(len));
        let ungranted = inbound.rendezvous && f.offset + len > inbound.granted;
        let refused = inbound.state == InboundState::Refused;
        if inbound.total != f.total || ungranted || refused {
            return Err(inbound.no_place());
        }
        if inbound.is_visible() {
            return self.take_visible(ctx, now, (peer, at), key, &f, memory);
        }
        match inbound.set.covered(start, n) {
            Covered::All if !ctx.cfg.errs(Mutation::ForgetFragments) => {
                ctx.note_duplicate(peer, at);
                return Ok(());
            }
            Covered::Some => {
                f.payload.verify_first = !ctx.cfg.errs(Mutation::WriteUnchecked);
            }
            Covered::None | Covered::All => {}
        }
        let landing = inbound.landing(key, f.offset, len);
        inbound.bounced |= matches!(landing, Landing::Bounce { .. });
        if !memory.land(&landing, &f.payload) && !ctx.cfg.errs(Mutation::IgnoreSum) {
            return Err(DropReason::CorruptPayload);
        }
        self.commit(ctx, now, key, start, n, len);
        Ok(())
    }

    /// Fast path without table lookups: a whole eager message, in order, with a receive posted for
    /// it.
    fn take_single(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        peer: PeerId,
        f: &Fragment<'_>,
        memory: &mut impl Memory,
    ) -> Option<Result<(), DropReason>> {
        let head = f.head?;
        let len = f.payload.bytes.len() as u64;
        if !is_matched(&head) {
            return None;
        }
        let conn = ctx.conn(peer)?;
        let number = conn.rx.next_match;
        if len != f.total || f.number != number as u32 || conn.rx.inbound.contains_key(&number) {
            return None;
        }
        let (at, found) = self.receives.locate(peer, &head)?;
        let tag = (head.tag, found.ignore);
        let tagged = head.flags & FLAG_TAGGED != 0;
        if tagged && self.completion_order.waits((peer, number), tag) {
            return None;
        }
        let copy = len.min(found.capacity) as usize;
        let landing = Landing::Posted {
            handle: found.handle,
            offset: found.base,
            copy,
        };
        if !memory.land(&landing, &f.payload) {
            return None; // matched nevertheless: a shorter message must not find the garbage
        }
        let found = self.receives.take_at(at, &head)?;
        let conn = ctx.conn_mut(peer)?;
        conn.rx.next_match += 1;
        conn.rx.watchers -= found.unwatches();
        let more = !conn.rx.inbound.is_empty();
        ctx.use_credit(peer, Credit::cost(len));
        ctx.return_credit(peer, Credit::cost(len));
        self.received(
            ctx,
            peer,
            head,
            (found.handle, found.base, copy as u64),
            None,
        );
        if more {
            self.advance_matching(ctx, now, peer);
        }
        Some(Ok(()))
    }

    fn on_head(&mut self, ctx: &mut Context<'_>, now: u64, peer: PeerId, key: Key, head: &MsgHead) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        if inbound.head.is_none() && inbound.total == head.total {
            inbound.head = Some(*head);
            self.advance_matching(ctx, now, peer);
        }
    }

    /// Matches, in order, every message whose head has arrived.
    pub(crate) fn advance_matching(&mut self, ctx: &mut Context<'_>, now: u64, peer: PeerId) {
        loop {
            let Some(conn) = ctx.conn(peer) else {
                return;
            };
            let due = match ctx.cfg.errs(Mutation::SkipOrder) {
                true => self.any_unmatched(conn),
                false => conn.rx.inbound.get(&conn.rx.next_match).copied(),
            };
            let Some(key) = due else {
                return;
            };
            let Some(inbound) = self.inbounds.get(key) else {
                return;
            };
            let Some(head) = inbound.head else {
                return;
            };
            // Later messages are matched after the RPC was taken.
            let keyed = ctx.cfg.key_mark != 0;
            if is_rpc(&head) && !(inbound.complete() && ctx.directory.serves_rpc(peer, keyed)) {
                return;
            }
            let Some(conn) = ctx.conn_mut(peer) else {
                return;
            };
            conn.rx.next_match += 1;
            self.match_head(ctx, peer, &head, key, now);
        }
    }

    pub(crate) fn on_rts(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        peer: PeerId,
        head: &MsgHead,
    ) -> Result<(), DropReason> {
        let advertisement =
            self.advertisement_of(peer, head.number, head.total, ctx.cfg.segment_min);
        let conn = ctx.conn(peer).ok_or(DropReason::Gone)?;
        let number = conn.rx.expand(head.number);
        if number < conn.rx.next_match || conn.rx.inbound.contains_key(&number) {
            return Ok(());
        }
        let credited = conn.had_credit_for(number) || ctx.cfg.errs(Mutation::TrustCredit);
        if !credited || head.total >= 1 << 56 {
            return Err(DropReason::Invalid);
        }
        let cost = Credit::cost(0);
        let share = ctx.has_share(peer, cost) || self.is_awaited(ctx, peer, number, Some(head));
        if !share || !ctx.has_room(cost, REQUEST_BOUNDS) {
            return Err(DropReason::NoMemory);
        }
        let mut inbound = new_inbound(peer, number, head.total, InboundState::Held);
        inbound.rendezvous = true;
        inbound.head = Some(*head);
        inbound.wanted = 0;
        inbound.advertisement = advertisement.filter(|_| !inbound.is_put());
        inbound.charged = cost;
        ctx.charge(peer, cost);
        // While memory is plentiful, a request's credit is returned at once, so that requests
        // without a matching receive do not block matching ones.
        let plenty = ctx.stats.unexpected_bytes < ctx.cfg.unexpected_bytes;
        inbound.credit = if plenty { 0 } else { cost };
        let key = self.inbounds.insert(inbound);
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.rx.inbound.insert(number, key);
        }
        ctx.use_credit(peer, cost);
        if plenty {
            ctx.return_credit(peer, cost);
        }
        self.advance_matching(ctx, now, peer);
        Ok(())
    }

    /// The message that would be matched next if order did not matter (for a mutation).
    pub(crate) fn any_unmatched(&self, conn: &Conn) -> Option<Key> {
        let held = |key: &&Key| {
            let inbound = self.inbounds.get(**key);
            inbound.is_some_and(|i| i.state == InboundState::Held && i.head.is_some())
        };
        conn.rx.inbound.values().find(held).copied()
    }
}
