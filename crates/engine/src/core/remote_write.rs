//! RDMA writes into peers' memory and theirs into ours (see `marline_proto`'s `written`): the
//! lifetime of access to memory.
//!
//! - Memory of a receive is registered when the node asks, and deregistered before the operation
//!   ends.
//! - Memory of a send is in use until its rails have completed every write, even if all bytes were
//!   acknowledged (or the peer died) earlier: the operation ends only then. A rail copies unsent
//!   bytes if it can. A rail that does not complete a write is drained and given up for a while:
//!   the local-completion watchdog of paper 3.
//! - A rail whose device needs registered source memory registers all memory of a send at the first
//!   write. The registration lasts until the send ends or releases its memory, when no write reads
//!   it any more.

use crate::api::EpId;
use crate::core::Core;
use crate::memory::copy::poison;
use crate::memory::op_table::SendOp;
use crate::memory::sums::Owner;
use crate::platform::system::System;
use crate::state::rails::{link_of, Body, Pending};
use crate::state::write::{pieces_of, OutstandingWrite, PendingWrite, ToWrite};
use marline_auth::PacketKeys;
use marline_codes::Code;
use marline_proto::{Mutation, Transmit};
use marline_rails::{
    Caps, LinkId, RailTx, RemoteWrite, RemoteWrites, SendOutcome, Staging, TxBuffers, Write,
};

/// True if a rail may report a write before its bytes have landed, or cannot know when they land:
/// memory for such writes is poisoned first.
pub(crate) fn lands_unseen(caps: &Caps) -> bool {
    let placed = matches!(
        caps.remote_write,
        RemoteWrites::Unordered | RemoteWrites::Ordered
    );
    placed && !caps.knows_landed
}

/// The receiver.
impl<S: System> Core<S> {
    /// Registers `len` bytes at `offset` of a receive's memory on the rails of a mask.
    pub(crate) fn register_rkeys(
        &mut self,
        ep: EpId,
        (inbound, handle): (u64, u32),
        (offset, len): (u64, u64),
        mask: u32,
    ) {
        let op = self.ops.recvs.get(handle);
        let Some(base) = op.and_then(|op| op.pieces.whole(offset, len as usize)) else {
            return;
        };
        if len < size_of::<u64>() as u64 {
            return;
        }
        let mask = self.stage((ep, inbound), len as usize, mask);
        let mut rails = self.rails.iter().enumerate();
        if rails.any(|(index, rail)| mask >> index & 1 == 1 && lands_unseen(&rail.tx.caps())) {
            let Ok(word) = (self.random)() else {
                return; // old bytes could not be distinguished from new ones: no write is allowed
            };
            let node = self.dir.eps[ep.0 as usize].as_ref().map(|ep| &ep.node);
            let mut from = 0;
            while let Some((start, end)) = node.and_then(|node| node.unread(inbound, from)) {
                poison(
                    base.wrapping_add(start as usize),
                    (end - start) as usize,
                    word,
                );
                from = end;
            }
        }
        for (index, rail) in self.rails.list.iter_mut().enumerate() {
            if mask >> index & 1 == 0 || rail.tx.caps().remote_write == RemoteWrites::None {
                continue;
            }
            let Some(key) = rail.tx.register(base, len as usize) else {
                continue;
            };
            let keys = self.rails.rkeys.entry((ep.0, inbound)).or_default();
            keys.push((index as u8, key));
            if let Some(endpoint) = self.dir.eps[ep.0 as usize].as_mut() {
                endpoint.node.registered_on(inbound, index as u8, key);
            }
        }
    }

    /// Allocates staging buffers for a message on those rails of `mask` that have some, if the
    /// message is to be staged. Returns the other rails.
    fn stage(&mut self, (ep, inbound): (EpId, u64), len: usize, mask: u32) -> u32 {
        let cfg = &self.cfg.proto;
        let summed = cfg.algorithm != 0 && cfg.summed.0 <= len as u64 && len as u64 <= cfg.summed.1;
        if cfg.staged.is_none() || !summed {
            return mask;
        }
        let mut others = mask;
        for index in (0..self.rails.len()).filter(|index| mask >> index & 1 == 1) {
            let Some(key) = self.rails[index].tx.stage(len) else {
                continue;
            };
            others &= !(1 << index);
            self.rails[index].counters.staged += 1;
            let keys = self.rails.rkeys.entry((ep.0, inbound)).or_default();
            keys.push((index as u8, key));
            if let Some(endpoint) = self.dir.eps[ep.0 as usize].as_mut() {
                endpoint.node.registered_on(inbound, index as u8, key);
            }
        }
        others
    }

    /// Ends all access to an inbound message's memory.
    pub(crate) fn deregister(&mut self, ep: EpId, inbound: u64) {
        self.forget_reads(ep, inbound);
        self.rails.deregister((ep.0, inbound));
    }

    /// Ends all registrations.
    pub(crate) fn deregister_all(&mut self) {
        self.rails.deregister_all_of(|_| true);
        self.rails.sums.withdraw(|_| true);
    }

    /// Ends all registrations of a closing endpoint, and all writes of its sends.
    pub(crate) fn stop_writes(&mut self, ep: EpId) {
        self.rails.deregister_all_of(|index| index == ep.0);
        self.stop_writes_of(|op| op.ep == ep);
    }

    /// Ends all writes of some sends; afterwards no rail reads their memory.
    pub(crate) fn stop_writes_of(&mut self, which: impl Fn(&SendOp) -> bool) {
        let sends = &self.ops.sends;
        let of = |handle| sends.get(handle).is_some_and(&which);
        let sent = |owner| matches!(owner, Owner::Send(handle) if of(handle));
        self.rails.sums.withdraw(sent);
        self.close_advertisements_of(&which);
        for rail in 0..self.rails.len() {
            let of = |handle| self.ops.sends.get(handle).is_some_and(&which);
            let state = &self.rails[rail];
            let waits = state.pending.as_ref().and_then(Pending::write);
            let waits = waits.is_some_and(of);
            let busy = state.outstanding.iter().any(|w| of(w.handle));
            if waits {
                self.drop_pending(rail);
            }
            if busy {
                self.drain_writes(rail);
            }
        }
        if !self.rails.sources.is_empty() {
            let over = self.ops.sends.find(which);
            over.iter().for_each(|&handle| self.close_source(handle));
        }
    }

    /// Ends the devices' access to the memory of a send. No write from this memory is in flight.
    pub(crate) fn close_source(&mut self, handle: u32) {
        if !self.rails.sources.is_empty() && !self.cfg.proto.errs(Mutation::KeepSource) {
            self.rails.close_source(handle);
        }
    }
}

/// The sender.
impl<S: System> Core<S> {
    /// Sends a write with its notification, which has these keys, in the order of its rail.
    pub(crate) fn send_written(
        &mut self,
        now: u64,
        (index, keys): (usize, Option<PacketKeys>),
        first: &Transmit,
    ) {
        let Some(endpoint) = self.dir.eps[index].as_mut() else {
            return;
        };
        let Some(write) = endpoint.node.take_write() else {
            return;
        };
        let Some(op) = self.ops.sends.get_mut(write.handle) else {
            return;
        };
        op.writes += 1;
        let mut to_write = ToWrite::new(first, &write, keys);
        to_write.summed = to_write.sum_by_workers(&mut self.rails.sums, &op.pieces, &write);
        let mut bytes = std::mem::take(&mut self.rails.spare);
        let state = &mut self.rails.list[first.rail];
        let Some(buffer) = state.buffer else {
            return self.end_write(write.handle); // no buffer: the notification is lost
        };
        bytes.extend_from_slice(&state.tx.buffer(buffer)[..first.len]);
        let all = first.len + write.len as usize;
        let (direct, datagrams) = match self.rails[first.rail].tx.caps().remote_write {
            // Direct writes are summed when they leave.
            RemoteWrites::Direct => (Some(to_write), all.div_ceil(write.segment.max(1))),
            RemoteWrites::Unordered | RemoteWrites::Ordered => {
                let range = (write.offset, write.len as usize);
                let sum = to_write.sum_early(&mut self.rails.sums, &op.pieces, range);
                to_write.seal(&mut bytes, sum);
                (None, 1)
            }
            RemoteWrites::None => {
                self.end_write(write.handle); // support just ended: the write is lost
                return;
            }
        };
        let counters = &mut self.rails[first.rail].counters;
        counters.send_calls += 1;
        counters.wire_packets_sent += datagrams as u64;
        counters.wire_bytes_sent += all as u64;
        let announced = PendingWrite {
            handle: write.handle,
            key: write.key,
            offset: write.offset,
            len: write.len as usize,
            direct,
        };
        let pending = Pending {
            dest: first.dest,
            body: Body::Write(bytes, announced),
        };
        let sent = self.send_again(now, first.rail, pending);
        self.rails[first.rail].counters.busy += !sent as u64;
    }

    /// Sends the rail's pending packets; `false`: they could not leave.
    pub(crate) fn send_again(&mut self, now: u64, rail: usize, mut pending: Pending) -> bool {
        let (link, flow) = link_of(pending.dest);
        let outcome = match &mut pending.body {
            Body::Batch {
                buffer,
                len,
                segment,
            } => (self.rails[rail].tx).send_buffer(link, *buffer, *len, *segment, flow),
            Body::Write(packet, write) if write.direct.is_some() => {
                self.write_direct(now, rail, (link, flow), packet, write)
            }
            Body::Write(packet, write) => self.write(now, rail, link, write, packet),
        };
        if outcome == SendOutcome::Busy {
            self.no_room(now, rail, Some(pending));
            return false;
        }
        self.after_send(now, rail, link, outcome);
        true
    }

    fn write(
        &mut self,
        now: u64,
        rail: usize,
        link: LinkId,
        write: &PendingWrite,
        packet: &[u8],
    ) -> SendOutcome {
        let Some(op) = self
            .ops
            .sends
            .get(write.handle)
            .filter(|op| op.ended.is_none())
        else {
            // All bytes were acknowledged by other means, or the peer is dead.
            self.end_write(write.handle);
            return SendOutcome::Sent;
        };
        let source = self.rails.source_of((write.handle, rail as u8), &op.pieces);
        let mut pieces = std::mem::take(&mut self.rails.pieces);
        pieces_of(&op.pieces, write, &mut pieces);
        self.rails.write_token += 1;
        let token = self.rails.write_token;
        let posted = Write {
            key: write.key,
            offset: write.offset,
            pieces: &pieces,
            token,
            source,
        };
        let ahead = self.rails[rail].tx.given();
        let outcome = self.rails[rail].tx.write(link, &posted, packet);
        pieces.clear();
        self.rails.pieces = pieces;
        match outcome {
            SendOutcome::Sent => self.rails[rail].outstanding.push(OutstandingWrite {
                token,
                handle: write.handle,
                since_ns: now,
                ahead,
            }),
            SendOutcome::Busy => {}
            _ => self.end_write(write.handle),
        }
        outcome
    }

    /// Drops the rail's pending packets.
    pub(crate) fn drop_pending(&mut self, rail: usize) {
        self.groups.batches.forget(|of, _| of == rail);
        match self.rails[rail].pending.take().map(|p| p.body) {
            Some(Body::Write(_, write)) => self.end_write(write.handle),
            Some(Body::Batch { buffer, .. }) => self.rails[rail].tx.give_back(buffer),
            None => {}
        }
        self.has_room(rail);
    }

    /// Ends a write that a rail has completed.
    pub(crate) fn on_written(&mut self, rail: usize, token: u64) {
        let outstanding = &mut self.rails[rail].outstanding;
        if let Some(at) = outstanding.iter().position(|w| w.token == token) {
            let write = outstanding.remove(at);
            self.end_write(write.handle);
        }
    }

    /// Removes one reader of a send's memory, and ends the send if it was waiting for that.
    pub(crate) fn end_write(&mut self, handle: u32) {
        let Some(op) = self.ops.sends.get_mut(handle) else {
            return;
        };
        op.writes -= 1;
        if let Some(end) = op.ended.filter(|_| op.writes == 0) {
            self.send_done(handle, end);
        }
    }

    /// Aborts the rail's writes; afterwards none of them reads memory.
    fn drain_writes(&mut self, rail: usize) {
        self.rails[rail].tx.drain();
        for write in std::mem::take(&mut self.rails[rail].outstanding) {
            self.end_write(write.handle);
        }
        self.fail_reads(rail);
    }

    /// Removes the remaining writes of an ended send, whose result is no longer needed, from rails
    /// that can copy queued bytes.
    pub(crate) fn copy_writes(&mut self, handle: u32) {
        for rail in 0..self.rails.len() {
            if !self.rails[rail].tx.caps().copies_writes {
                continue;
            }
            let pending = self.rails[rail].pending.as_ref().and_then(Pending::write);
            if pending == Some(handle) {
                self.drop_pending(rail);
            }
            let mut outstanding = self.rails[rail].outstanding.iter();
            if outstanding.any(|w| w.handle == handle) {
                self.drain_writes(rail);
            }
        }
    }

    /// Gives up a rail whose oldest write or a read has exceeded its timeout. Returns whether it
    /// did.
    pub(crate) fn watch_writes(&mut self, now: u64, rail: usize) -> bool {
        self.rails[rail].look_at_device(now);
        let stuck = self.rails[rail].stuck_at().is_some_and(|at| at <= now);
        let stuck = stuck && !self.cfg.proto.errs(Mutation::WaitOn);
        if stuck {
            let name = &self.rails[rail].name;
            let text =
                format!("rail {name}: a write or read does not end: the rail is given up for now");
            self.warn(Code::RailStuck, &text);
            self.drain_writes(rail);
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::lands_unseen;
    use marline_rails::{Caps, RemoteWrites};

    #[test]
    fn only_memory_for_writes_of_unknown_completion_is_poisoned() {
        let caps = |remote_write, knows_landed| Caps {
            remote_write,
            knows_landed,
            ..Caps::datagrams(1_472)
        };
        for (how, knows, poisoned) in [
            (RemoteWrites::Unordered, false, true),
            (RemoteWrites::Ordered, false, true),
            (RemoteWrites::Ordered, true, false),
            (RemoteWrites::Direct, false, false),
            (RemoteWrites::None, false, false),
        ] {
            assert_eq!(
                lands_unseen(&caps(how, knows)),
                poisoned,
                "{how:?}, {knows}"
            );
        }
    }
}
