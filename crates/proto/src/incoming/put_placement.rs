//! Remote writes into memory that the program sees, and may poll, while they arrive.
//!
//! - A byte is stored only after its sum was verified, and only once: the program may have changed
//!   it since it became visible. So a fragment is summed in the packet and copied from there; of a
//!   fragment that arrived in part before, only the missing bytes are copied.
//! - The last byte becomes visible last: a program that sees it may store anywhere in the written
//!   memory. The last block waits in a bounce buffer while other blocks are missing.
//! - Rails do not write into such memory themselves: those bytes would be visible before they are
//!   verified, and the bytes left by a connection that breaks would be stored again. (Reads fill
//!   the memory of an unfinished operation, about whose contents nothing is promised.)

use crate::base::blocks::Covered;
use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{DropReason, Event, Landing, Memory, Payload, PeerId, PutEnd};
use crate::incoming::fragment::Fragment;
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::transfer::InboundState;
use core::ops::Range;
use marline_wire::{blocks, BLOCK_BYTES};

/// A verified payload, or a part of one.
fn unsummed(bytes: &[u8]) -> Payload<'_> {
    Payload {
        bytes,
        sum: 0,
        seed: 0,
        algorithm: 0,
        verify_first: false,
    }
}

/// Stores a payload if its sum is correct. Returns whether the sum was correct.
pub(crate) fn show_payload(
    cfg: &Config,
    landing: &Landing,
    payload: &Payload<'_>,
    memory: &mut impl Memory,
) -> bool {
    let right = memory.land(&Landing::Discard, payload);
    let shows = right || cfg.errs(Mutation::ShowUnverified);
    if let (true, &Landing::Posted { handle, offset, .. }) = (shows, landing) {
        memory.show(handle, offset, payload.bytes, false);
    }
    right
}

impl Incoming {
    /// Handles a fragment of a granted remote write.
    pub(crate) fn take_visible(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        (peer, at): (PeerId, usize),
        key: Key,
        f: &Fragment<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let Some(inbound) = self.inbounds.get(key) else {
            return Ok(());
        };
        let len = f.payload.bytes.len() as u64;
        let (start, n) = (f.offset / BLOCK_BYTES, blocks(len));
        let again = ctx.cfg.errs(Mutation::ShowAgain);
        if inbound.set.covered(start, n) == Covered::All {
            if again {
                let landing = inbound.landing(key, f.offset, len);
                show_payload(ctx.cfg, &landing, &f.payload, memory);
            }
            ctx.note_duplicate(peer, at);
            return Ok(());
        }
        let right = memory.land(&Landing::Discard, &f.payload);
        let trusts = right || ctx.cfg.errs(Mutation::IgnoreSum);
        if trusts || ctx.cfg.errs(Mutation::ShowUnverified) {
            self.show_missing(ctx, key, (f.offset, f.payload.bytes), memory);
        }
        if !trusts {
            return Err(DropReason::CorruptPayload);
        }
        self.commit(ctx, now, key, start, n, len);
        Ok(())
    }

    /// Stores the bytes of a fragment that are not stored yet; the end of the message is held in
    /// its bounce buffer while other bytes are missing.
    fn show_missing(
        &mut self,
        ctx: &mut Context<'_>,
        key: Key,
        (offset, bytes): (u64, &[u8]),
        memory: &mut impl Memory,
    ) {
        let again = ctx.cfg.errs(Mutation::ShowAgain);
        let Some(inbound) = self.inbounds.get(key) else {
            return;
        };
        let InboundState::Bound { handle, base, .. } = inbound.state else {
            return;
        };
        let (first, last) = (offset / BLOCK_BYTES, inbound.end_at() / BLOCK_BYTES);
        let all = first..first + blocks(bytes.len() as u64);
        let part = |blocks: &Range<u64>| {
            let at = |block: u64| ((block - first) * BLOCK_BYTES) as usize;
            &bytes[at(blocks.start)..at(blocks.end).min(bytes.len())]
        };
        let (mut next, end) = (all.start, all.end.min(last));
        let mut others = inbound.set.count();
        while next < end {
            let free = match again {
                true => end - next,
                false => inbound.set.free_from(next, end - next),
            };
            if free > 0 {
                let run = next..next + free;
                memory.show(handle, base + next * BLOCK_BYTES, part(&run), false);
            }
            (next, others) = (next + free + 1, others + free);
        }
        if all.end <= last || inbound.set.contains(last) {
            return;
        }
        let tail = part(&(last..all.end));
        if others == last || ctx.cfg.errs(Mutation::ShowEndEarly) {
            memory.show(handle, base + inbound.end_at(), tail, true);
        } else {
            self.hold_end(ctx, key, tail, memory);
        }
    }

    fn hold_end(&mut self, ctx: &mut Context<'_>, key: Key, tail: &[u8], memory: &mut impl Memory) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        let len = tail.len() as u64;
        inbound.holds_end = true;
        let peer = inbound.peer;
        inbound.charged += len;
        ctx.charge(peer, len);
        let landing = Landing::Bounce {
            inbound: key.name(),
            total: len,
            offset: 0,
        };
        memory.land(&landing, &unsummed(tail));
    }

    /// Stores the end of a complete remote write if it was held.
    pub(crate) fn show_end(&mut self, ctx: &mut Context<'_>, key: Key, (handle, base): (u32, u64)) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        if core::mem::take(&mut inbound.holds_end) {
            let end = inbound.end_at();
            let end = PutEnd {
                handle,
                inbound: key.name(),
                offset: base + end,
                len: inbound.total - end,
            };
            ctx.events.push_back(Event::PutEnd(end));
        }
    }
}
