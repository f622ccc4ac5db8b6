//! Receiving half of writes by rails: keys of messages, and write notifications (see
//! [`crate::rma::remote_write`] for the whole).

use crate::base::blocks::Covered;
use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{
    sum_seed, sums_of, DropReason, Event, Memory, PeerId, WriteCheck, WrittenSum,
};
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::transfer::{Inbound, InboundState, Keys};
use marline_wire::{blocks, Frame, Header, Hello, Rkey, Written, BLOCK_BYTES, FLAG_READ_REPLY};

impl Incoming {
    /// If the message is suitable, asks the owner to register all of its memory on the rails that
    /// could write it.
    pub(crate) fn want_keys(&mut self, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = self.inbounds.get(key) else {
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
        let fits = total >= ctx.cfg.write_min && total <= capacity;
        let visible = inbound.is_put() && !ctx.cfg.errs(Mutation::OpenVisible);
        let fits = fits && inbound.own.is_none() && !visible;
        let paths = ctx.conn(peer).map_or(&[][..], |c| &c.paths);
        let ours = |local: u8| ctx.local.rails[local as usize].addr.writes();
        let able = paths.iter().filter(|p| p.to.writes() && ours(p.local));
        let rails = able.fold(0u32, |rails, p| rails | 1 << p.local);
        if !fits || rails == 0 || !ctx.cfg.reliable {
            return;
        }
        if let Some(inbound) = self.inbounds.get_mut(key) {
            inbound.keys.asked = true;
        }
        ctx.events.push_back(Event::RegistrationWanted {
            inbound: key.name(),
            handle,
            offset: base,
            len: total,
            rails,
        });
    }

    /// Reports that the owner registered the memory of an inbound message on a local rail (after
    /// [`Event::RegistrationWanted`]). The key is sent with the message's grants.
    pub fn registered_on(&mut self, ctx: &mut Context<'_>, inbound: u64, rail: u8, rail_key: u64) {
        let key = Key::of(inbound);
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return; // its `Deregister` event is queued
        };
        inbound.keys.by_rail.push((rail, rail_key));
        let (peer, granted) = (inbound.peer, inbound.granted);
        if let Some(conn) = ctx.conn_mut(peer).filter(|_| granted > 0) {
            if !conn.tx.grants.contains(&key) {
                conn.tx.grants.push_back(key);
            }
            ctx.wake(peer);
        }
    }

    /// Handles a write notification. The fragment counts as arrived if the bytes at its place have
    /// the correct sum.
    pub(crate) fn take_written(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        (peer, at): (PeerId, usize),
        header: &Header,
        w: &Written,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let reply = w.flags & FLAG_READ_REPLY != 0;
        let conn = ctx.conn(peer).ok_or(DropReason::Gone)?;
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
                    ctx.note_duplicate(peer, at);
                    Ok(())
                }
                false => Err(DropReason::Invalid),
            };
        };
        let Some(inbound) = self.inbounds.get(key) else {
            return Ok(());
        };
        let (len, algorithm) = (w.len as u64, sums_of(header.algorithm, w.flags));
        let asked = inbound.keys.asked && inbound.total == w.total;
        let ungranted = w.offset + len > inbound.granted;
        if !asked || ungranted || !ctx.local.trusts_writes(ctx.cfg, local, algorithm) {
            return Err(inbound.no_place());
        }
        let (start, n) = (w.offset / BLOCK_BYTES, blocks(len));
        if inbound.set.covered(start, n) == Covered::All {
            ctx.note_duplicate(peer, at);
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
            WriteCheck::Wrong if !ctx.cfg.errs(Mutation::TrustWrites) => {
                ctx.stats.written_wrong += 1;
                Err(wrong_sum(reply))
            }
            WriteCheck::Missing => {
                ctx.stats.written_lost += 1;
                Err(DropReason::Unwritten)
            }
            _ => {
                self.commit(ctx, now, key, start, n, len);
                if let Some(path) = ctx.conn_mut(peer).and_then(|c| c.paths.get_mut(at)) {
                    path.stats.bytes_received += len;
                }
                Ok(())
            }
        }
    }
}

/// Why written bytes with a wrong sum are dropped. The owner may store into memory that is read
/// between the sum and the write: then no path is to blame. (Packets that announce replies, and the
/// retransmission, still show damage.)
fn wrong_sum(reply: bool) -> DropReason {
    match reply {
        true => DropReason::Unwritten,
        false => DropReason::CorruptPayload,
    }
}

impl Inbound {
    /// The frames that report the message's keys, sent before its grants.
    pub(crate) fn key_frames(&self) -> impl Iterator<Item = Frame<Hello<'static>>> + '_ {
        let (number, flags) = (self.number as u32, self.kind_flag());
        let frame = move |&(rail, key): &(u8, u64)| {
            Frame::Key(Rkey {
                number,
                flags,
                rail,
                key,
            })
        };
        self.keys.by_rail.iter().map(frame)
    }

    /// Ends the keys of a message whose written bytes are retransmitted.
    pub(super) fn deregister(&mut self, cfg: &Config, key: Key, memory: &mut impl Memory) {
        if !self.keys.by_rail.is_empty() && !cfg.errs(Mutation::WriteLate) {
            self.keys.by_rail.clear();
            memory.deregister(key.name());
        }
    }
}

impl Keys {
    /// Ends a message's keys; call it before the message or its memory ends.
    pub(super) fn end(&self, ctx: &mut Context<'_>, key: Key) {
        if self.asked && !ctx.cfg.errs(Mutation::KeepKeys) {
            ctx.events.push_back(Event::Deregister {
                inbound: key.name(),
            });
        }
    }
}
