//! Receiving half of first pieces: a request may bring the first bytes of its message, which need
//! no grant. Until the message matches a receive they are an unexpected message of that length, in
//! a bounce buffer within the bound on unexpected memory; without room there they are dropped, and
//! come again. A fragment that overtakes the request is dropped too.

use crate::base::blocks::Covered;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::Event;
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::credit::Credit;
use crate::state::transfer::{Inbound, InboundState};
use core::mem::take;
use marline_wire::{blocks, BLOCK_BYTES};

impl Incoming {
    /// Charges for the first piece of a new request if there is room for it.
    pub(super) fn hold_piece(ctx: &mut Context<'_>, inbound: &mut Inbound, room: bool) {
        inbound.credit += inbound.first;
        if inbound.first > 0 && room {
            inbound.granted = inbound.first;
            if !ctx.cfg.errs(Mutation::HoldUncharged) {
                inbound.charged = ctx.cfg.charged(Credit::cost(inbound.first));
            }
        }
    }

    /// Copies what came of the first piece of a message to the receive that the message was bound
    /// to; all further bytes go there directly. The piece's memory and credit are free.
    pub(super) fn place_piece(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = self.inbounds.get_mut(key).filter(|i| i.first > 0) else {
            return;
        };
        let (peer, first) = (inbound.peer, inbound.first);
        inbound.granted = first;
        inbound.credit -= first;
        let held = inbound.charged.saturating_sub(Credit::cost(0));
        inbound.charged -= held;
        if take(&mut inbound.bounced) {
            inbound.unbounce(ctx, key);
        }
        ctx.release(peer, held);
        ctx.return_credit(peer, first);
    }
}

impl Inbound {
    /// Returns whether the message is cut to its first piece, and so ends without a grant: its
    /// sender waits for an answer.
    pub(super) fn ends_in_piece(&self) -> bool {
        self.wanted > 0 && self.wanted <= self.first
    }

    /// Queues the copies from the bounce buffer, and its end.
    fn unbounce(&self, ctx: &mut Context<'_>, key: Key) {
        let inbound = key.name();
        let InboundState::Bound {
            handle,
            base,
            capacity,
        } = self.state
        else {
            return;
        };
        let (mut at, end) = (0, blocks(self.first));
        while at < end {
            at += self.set.free_from(at, end - at);
            let from = at;
            while at < end && self.set.contains(at) {
                at += 1;
            }
            let (from, to) = (from * BLOCK_BYTES, (at * BLOCK_BYTES).min(capacity));
            if from < to {
                ctx.events.push_back(Event::BounceCopy {
                    inbound,
                    handle,
                    from,
                    offset: base + from,
                    len: to - from,
                });
            }
        }
        if !ctx.cfg.errs(Mutation::CopyPieceAgain) {
            ctx.events.push_back(Event::BounceFree { inbound });
        }
    }

    /// Copies all of the bounce buffer, whatever came (for a mutation).
    pub(super) fn unbounce_all(&self, ctx: &mut Context<'_>, key: Key) {
        let inbound = key.name();
        if let InboundState::Bound {
            handle,
            base: offset,
            capacity,
        } = self.state
        {
            ctx.events.push_back(Event::BounceCopy {
                inbound,
                handle,
                from: 0,
                offset,
                len: self.first.min(capacity),
            });
        }
        ctx.events.push_back(Event::BounceFree { inbound });
    }

    /// Returns whether all of a bound message but its first piece came (for a mutation).
    pub(super) fn has_rest(&self) -> bool {
        let bound = matches!(self.state, InboundState::Bound { .. });
        let (from, to) = (blocks(self.first), blocks(self.wanted));
        bound
            && (1..self.wanted).contains(&self.first)
            && self.set.covered(from, to - from) == Covered::All
    }

    /// Of `len` bytes at block `start`, those behind the first piece, which count as granted.
    pub(super) fn granted_of(&self, start: u64, len: u64) -> u64 {
        let at = start * BLOCK_BYTES;
        (at + len).saturating_sub(self.first.max(at))
    }
}
