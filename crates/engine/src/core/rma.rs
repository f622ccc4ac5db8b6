//! Remote memory access: registration, this process's reads and writes of peers' memory, and peers'
//! reads and writes of its own. No operation touches registered memory after it is closed:
//! operations in flight are then refused.

use crate::api::{
    flag, Completion, Counted, Counter, EpId, IoVec, OpError, Region, RemoteReq, SubmitError,
    INJECT_MAX,
};
use crate::core::parts::Access;
use crate::core::submit::{gather, total};
use crate::core::Core;
use crate::memory::op_table::{Pieces, RecvOp, Role, SendOp, Served};
use crate::memory::pool::Buffer;
use crate::platform::system::System;
use crate::state::regions::Range;
use crate::state::rpcs::Part;
use marline_codes::Code;
use marline_proto::{Claim, Event, Mutation, PeerId};
use marline_wire::FLAG_PART;
use std::sync::Arc;

impl<S: System> Core<S> {
    /// Handles an event of remote memory.
    pub(crate) fn on_remote_event(&mut self, ep: EpId, event: Event) {
        match event {
            Event::ReadDone { handle, ok: true } => self.read_done(handle, Ok(())),
            Event::ReadDone { handle, .. } => {
                self.read_done(handle, Err(OpError::BadRemoteMemory));
            }
            Event::ReadLost { handle } => self.read_done(handle, Err(OpError::PeerDead)),
            Event::PutRefused { handle } => {
                self.send_done(handle, Err(OpError::BadRemoteMemory));
            }
            Event::ReadAsked {
                peer,
                number,
                key,
                addr,
                len,
                upto,
                part,
            } => self.read_asked(ep, (peer, number), (key, addr, len), (upto, part)),
            Event::PutAsked {
                peer,
                claim,
                key,
                addr,
                len,
            } => self.put_asked(ep, (peer, claim), (key, addr, len)),
            _ => {}
        }
    }
}

/// Registered memory.
impl<S: System> Core<S> {
    /// Registers memory in pieces for peers.
    pub fn mr_open(&mut self, region: &Region, pieces: &[IoVec]) -> Result<(), SubmitError> {
        let (mut region, mut pieces) = (*region, Pieces::new(pieces));
        if self.cfg.proto.errs(Mutation::KeepLength) {
            let before = self.ops.regions.get(&!region.key);
            region.len = before.map_or(region.len, |r| r.region.len);
            let (base, len) = (region.base, region.len);
            pieces = Pieces::new(&[IoVec { base, len }]);
        }
        match self.ops.add_region(region.key, region, pieces) {
            true => Ok(()),
            false => Err(SubmitError::Invalid),
        }
    }

    /// Closes registered memory; afterwards no peer reads or writes it.
    pub fn mr_close(&mut self, now: u64, key: u64) {
        // Operations whose bytes have arrived still succeed.
        self.settle();
        let closed = self.ops.remove_region(key);
        let used = closed.as_ref().is_some_and(|r| r.users > 0);
        let errs = |mistake| self.cfg.proto.errs(mistake);
        let keeps = errs(Mutation::KeepLength) || errs(Mutation::RpcClosed);
        if let Some(before) = closed.filter(|_| keeps) {
            self.ops.add_region(!key, before.region, before.pieces);
        }
        if !used {
            return;
        }
        if !self.cfg.proto.errs(Mutation::WriteClosed) {
            self.refuse_puts(now, key);
        }
        if !self.cfg.proto.errs(Mutation::ReadClosed) {
            self.refuse_reads(key);
        }
        self.deferred = true;
    }

    /// Binds a counter for peers' operations on registered memory: reads, or writes and updates.
    pub fn mr_bind_counter(
        &mut self,
        key: u64,
        counts: [bool; 2],
        counter: &Arc<Counter>,
    ) -> Result<(), SubmitError> {
        let region = self.ops.regions.get_mut(&key);
        let counters = &mut region.ok_or(SubmitError::Invalid)?.counters;
        let slots = || counts.into_iter().enumerate().filter(|(_, counts)| *counts);
        if slots().any(|(i, _)| counters[i].is_some()) {
            return Err(SubmitError::Invalid);
        }
        slots().for_each(|(i, _)| counters[i] = Some(counter.clone()));
        Ok(())
    }

    /// Number of peers' operations that use registered memory.
    pub fn region_users(&self) -> u32 {
        self.ops.regions.values().map(|r| r.users).sum()
    }

    fn refuse_puts(&mut self, now: u64, key: u64) {
        let of = |role: Role| matches!(role, Role::Put(region, _) if region == key);
        for handle in self.ops.recvs.find(|op| of(op.role)) {
            let Some(op) = self.ops.recvs.remove(handle) else {
                continue;
            };
            if let (Role::Put(_, claim), Some(endpoint)) = (op.role, self.dir.ep(op.ep)) {
                endpoint.node.refuse_put(claim, now);
            }
        }
        self.settle(); // ends all access to the memory
    }

    fn refuse_reads(&mut self, key: u64) {
        let of = |op: &SendOp| op.serves.is_some_and(|s| s.region == key);
        for handle in self.ops.sends.find(of) {
            let Some(op) = self.ops.sends.get(handle) else {
                continue;
            };
            if let (Some(served), Some(endpoint)) = (op.serves, self.dir.ep(op.ep)) {
                endpoint.node.stop_read(served.peer, served.number);
            }
        }
        self.settle();
        self.stop_writes_of(of);
    }
}

/// The only remote piece with bytes, or the first piece if all are empty; `None` for several
/// pieces.
fn only(req: &RemoteReq<'_>) -> Option<Range> {
    let mut filled = req.remote.iter().filter(|(_, len, _)| *len > 0);
    let &(addr, len, key) = filled.next().or(req.remote.first())?;
    filled.next().is_none().then_some((key, addr, len as u64))
}

/// Flags by which the peer recognises a part.
fn flags_of(part: Option<Part>) -> u8 {
    match part {
        Some(Part { flags: 1.., .. }) => FLAG_PART,
        _ => 0,
    }
}

/// Operations of this process on peers' memory.
impl<S: System> Core<S> {
    /// The peer, if the operation is valid.
    fn remote(&mut self, ep: EpId, req: &RemoteReq<'_>) -> Result<PeerId, SubmitError> {
        let peer = self
            .dir
            .peer_of(ep, req.dest)
            .ok_or(SubmitError::BadAddress)?;
        if !self.dir.ep(ep).is_some_and(|e| e.enabled) {
            return Err(SubmitError::Invalid);
        }
        let mut lengths = req.remote.iter().map(|(_, len, _)| *len);
        let len = lengths.try_fold(0, usize::checked_add);
        if req.remote.is_empty() || len != Some(total(req.iov)) {
            return Err(SubmitError::Invalid);
        }
        Ok(peer)
    }

    /// Posts a remote read.
    pub fn read(&mut self, ep: EpId, req: &RemoteReq<'_>) -> Result<(), SubmitError> {
        let peer = self.remote(ep, req)?;
        match only(req) {
            Some((key, addr, 0)) => self.rpc_read((ep, peer), req, (key, addr)),
            Some(range) => self.read_one((ep, peer), req, range, None),
            None => self.remote_parts(0, (ep, peer), req, Access::Read),
        }
    }

    /// Posts a remote read of one piece, which may be a part of a longer read.
    pub(crate) fn read_one(
        &mut self,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        range @ (_, _, len): Range,
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let handle = self.ops.recvs.insert(RecvOp {
            ep,
            pieces: Pieces::new(req.iov),
            context: req.context,
            options: req.flags,
            tagged: false,
            role: Role::Read,
            cancelled: false,
        });
        self.counters.process.reads += 1;
        self.counters.process.read_bytes += len;
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let flags = flags_of(part);
        if !endpoint.node.post_read(handle, peer, range, flags) {
            self.ops.recvs.remove(handle);
            return Err(SubmitError::PeerDead);
        }
        endpoint.remote_open += 1;
        if let Some(part) = part {
            self.rpcs.reads.insert(handle, part.whole);
        }
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if endpoint.node.writes() {
            self.settle(); // its memory is registered before bytes can arrive there
        }
        self.deferred = true;
        Ok(())
    }

    /// Posts a remote write, which completes when its bytes are in the peer's memory. Until then
    /// the engine uses the caller's memory, unless the write is injected. A short write travels as
    /// an RPC.
    pub fn put(&mut self, now: u64, ep: EpId, req: &RemoteReq<'_>) -> Result<(), SubmitError> {
        let peer = self.remote(ep, req)?;
        let data_follows = |len| req.data.is_some() && !self.is_short(len as usize);
        match only(req).filter(|&(_, _, len)| !data_follows(len)) {
            Some(range) => self.put_one(now, (ep, peer), req, range, None),
            None => self.remote_parts(now, (ep, peer), req, Access::Write),
        }
    }

    /// Posts a remote write of one piece, which may be a part of a longer write.
    pub(crate) fn put_one(
        &mut self,
        now: u64,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        range @ (key, addr, len): Range,
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        if self.is_short(len as usize) {
            return self.rpc_write(now, (ep, peer), req, (key, addr), part);
        }
        let log = match req.flags.inject {
            true => Some(self.injected(req.iov, part.is_some())?),
            false => None,
        };
        self.put_long((ep, peer), req, range, log, part)
    }

    /// Copies the bytes of an injected operation, whose caller may reuse its memory on return.
    /// `room`: the log is known to have room.
    fn injected(&mut self, iov: &[IoVec], room: bool) -> Result<Buffer, SubmitError> {
        let len = total(iov);
        if len > INJECT_MAX {
            return Err(SubmitError::TooLong);
        }
        let room = (room || self.logs(len)).then(|| self.buffers.pool.take(len, true));
        let Some(mut buffer) = room.flatten() else {
            self.counters.process.again += 1;
            return Err(SubmitError::Again);
        };
        gather(iov, &mut buffer.bytes()[..len]);
        Ok(buffer)
    }

    fn put_long(
        &mut self,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        range: Range,
        mut log: Option<Buffer>,
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if endpoint.node.loopback_full(peer) && part.is_none() {
            return Err(SubmitError::Again);
        }
        let tx_cq = endpoint.tx_cq;
        let base = log.as_mut().map(|b| b.bytes().as_mut_ptr());
        let logged = base.map(|base| {
            [IoVec {
                base,
                len: range.2 as usize,
            }]
        });
        let completion = req.flags.completion;
        let handle = self.ops.sends.insert(SendOp {
            ep,
            pieces: Pieces::new(logged.as_ref().map_or(req.iov, |iov| iov)),
            log,
            on_delivery: tx_cq.filter(|_| completion),
            context: req.context,
            flags: flag::RMA | flag::WRITE,
            serves: None,
            writes: 0,
            borrowed: 0,
            ended: None,
        });
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if !(endpoint.node).post_put(handle, peer, range, flags_of(part)) {
            let op = self.ops.sends.remove(handle);
            if let Some(buffer) = op.and_then(|op| op.log) {
                self.buffers.pool.give(buffer);
            }
            return Err(SubmitError::PeerDead);
        }
        endpoint.remote_open += 1;
        if let Some(part) = part {
            self.rpcs.puts.insert(handle, part.whole);
        }
        self.deferred = true;
        Ok(())
    }

    fn read_done(&mut self, handle: u32, mut end: Result<(), OpError>) {
        let Some(op) = self.ops.recvs.remove(handle) else {
            return;
        };
        let Some(endpoint) = self.dir.ep(op.ep) else {
            return;
        };
        endpoint.remote_open = endpoint.remote_open.saturating_sub(1);
        let last = endpoint.remote_open == 0;
        self.answered |= last;
        if let Some(whole) = self.rpcs.reads.remove(&handle) {
            match self.part_over(whole, end, (op.ep, 0, 0)) {
                Some(all) => end = all,
                None => return, // other parts are in flight
            }
        }
        let Some(endpoint) = self.dir.ep(op.ep) else {
            return;
        };
        let (cq, ok) = (endpoint.tx_cq, end.is_ok());
        endpoint.count(Counted::Reads, ok);
        if op.options.completion || !ok {
            let entry = Completion {
                context: op.context,
                flags: flag::RMA | flag::READ,
                error: end.err(),
                ..Completion::empty()
            };
            self.complete(cq, entry);
        }
    }
}

/// Operations of peers on this process's memory.
impl<S: System> Core<S> {
    /// Counts and reports a peer's refused operation on this memory.
    pub(crate) fn refuse_range(&mut self, ep: EpId, peer: PeerId, does: &str, range: Range) {
        let (key, addr, len) = range;
        self.refuse(ep, peer, || {
            format!("{does} {len} bytes at {addr:#x} of key {key:#x}")
        });
    }

    /// Counts a peer's refused operation, and reports it unless another was within a second.
    pub(crate) fn refuse(&mut self, ep: EpId, peer: PeerId, does: impl FnOnce() -> String) {
        self.counters.process.remote_refused += 1;
        if !self.ops.refusals.is_news(self.polled_ns) {
            return;
        }
        let (who, does) = (self.describe(ep, peer), does());
        let reason = match self.ops.refusals.all {
            true => " (FI_MARLINE_RMA=off)",
            false => "",
        };
        let text = format!("peer {who} {does}: refused{reason}");
        self.warn(Code::RemoteRefused, &text);
    }

    /// Refuses all operations of peers on this process's memory.
    pub fn refuse_remote(&mut self) {
        self.ops.refusals.all = true;
    }

    /// Serves a peer's read.
    fn read_asked(
        &mut self,
        ep: EpId,
        (peer, number): (PeerId, u32),
        range: Range,
        (upto, part): (u64, bool),
    ) {
        let Some(pieces) = self.ops.enter_region(range, false) else {
            self.refuse_range(ep, peer, "reads", range);
            if let Some(endpoint) = self.dir.ep(ep) {
                endpoint.node.refuse_read(peer, number);
            }
            return;
        };
        if part {
            // The reader may report the end before it acknowledges the response.
            self.ops.part_came(range.0, (ep.0, peer.0, true));
        }
        let handle = self.ops.sends.insert(SendOp {
            ep,
            pieces,
            log: None,
            on_delivery: None,
            context: 0,
            flags: 0,
            serves: Some(Served {
                region: range.0,
                peer,
                number,
                part,
            }),
            writes: 0,
            borrowed: 0,
            ended: None,
        });
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint
                .node
                .serve_read(handle, peer, number, range.2, upto);
        }
    }

    /// Accepts or refuses a peer's write.
    fn put_asked(&mut self, ep: EpId, (peer, claim): (PeerId, Claim), range: Range) {
        let Some(pieces) = self.ops.enter_region(range, true) else {
            self.refuse_range(ep, peer, "writes", range);
            if let Some(endpoint) = self.dir.ep(ep) {
                endpoint.node.refuse_put(claim, 0); // nothing was granted: the time does not matter
            }
            return;
        };
        let handle = self.ops.recvs.insert(RecvOp {
            ep,
            pieces,
            context: 0,
            options: Default::default(),
            tagged: false,
            role: Role::Put(range.0, claim),
            cancelled: false,
        });
        let taken = self
            .dir
            .ep(ep)
            .is_some_and(|e| e.node.accept_put(claim, handle));
        if !taken {
            self.ops.recvs.remove(handle);
            self.ops.leave_region(range.0);
        }
    }
}
