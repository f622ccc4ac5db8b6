//! Posting of operations: sends, receives, peeks, claims, cancels.

use crate::api::{
    flag, Completion, CqId, EpId, FiAddr, IoVec, OpError, RecvReq, SendReq, SubmitError,
    ADDR_UNSPEC, BORROW_ABOVE, INJECT_MAX,
};
use crate::core::Core;
use crate::memory::op_table::{Pieces, RecvOp, Role, SendOp};
use crate::platform::system::System;
use crate::state::directory::Endpoint;
use marline_proto::{Claim, Mutation, Peeked, PeerId, RecvSpec, SendSpec, Source};

/// Longest send that may use the reserve and is never refused for lack of log memory. Open MPI
/// recurses on EAGAIN of sends without completion; other sends of this length are treated the same.
const RESERVE_MAX: usize = 64;

/// Bytes copied into the log after which the rails are polled briefly. Otherwise packets that wait
/// for room would wait until the application's next poll, however much it posts
/// (docs/design/eager.md).
const SHORT_POLL_BYTES: usize = 128 << 10;

/// Length from which messages are copied into the log only after they were sent
/// (docs/design/eager.md). For shorter copies the extra steps cost more than the delay.
const LATE_MIN: usize = 1_024;

pub(crate) fn total(iov: &[IoVec]) -> usize {
    iov.iter().map(|p| p.len).sum()
}

/// Copies the pieces one after another into `to`.
pub(crate) fn gather(iov: &[IoVec], to: &mut [u8]) {
    let mut at = 0;
    for piece in iov.iter().filter(|p| p.len > 0) {
        // SAFETY: the caller of the send lends `piece` for the call; `to` has room for all pieces.
        unsafe {
            let to = to[at..at + piece.len].as_mut_ptr();
            std::ptr::copy_nonoverlapping(piece.base, to, piece.len);
        }
        at += piece.len;
    }
}

impl<S: System> Core<S> {
    /// Posts a send. Returns `true` if a flush is worthwhile immediately, `false` if the message
    /// may be coalesced with later ones.
    pub fn send(&mut self, ep: EpId, req: &SendReq<'_>) -> Result<bool, SubmitError> {
        let peer = self
            .dir
            .peer_of(ep, req.dest)
            .ok_or(SubmitError::BadAddress)?;
        let len = total(req.iov);
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if !endpoint.enabled {
            return Err(SubmitError::Invalid);
        }
        if endpoint.node.peer_gone(peer) {
            return Err(SubmitError::PeerDead);
        }
        if endpoint.node.loopback_full(peer) {
            return Err(SubmitError::Again);
        }
        if req.flags.inject && len > INJECT_MAX {
            return Err(SubmitError::TooLong);
        }
        let tx_cq = endpoint.tx_cq;
        let op = self.send_op(ep, req, len)?;
        let local = op.on_delivery.is_none() && req.flags.completion;
        let (flags, borrowed) = (op.flags, op.borrowed);
        let urgent = op.on_delivery.is_some() && borrowed == 0;
        let late = len >= LATE_MIN && op.log.is_some();
        let stays = op.log.is_none() && len > BORROW_ABOVE;
        let handle = self.ops.sends.insert(op);
        self.unlogged = late.then_some(handle);
        self.ops.borrow(handle, borrowed);
        let (tag, data) = (req.tag, req.data);
        let spec = SendSpec {
            handle,
            peer,
            tag,
            data,
            len: len as u64,
            urgent_ack: urgent,
        };
        let (payload, waiting) = self.post(ep, &spec, (req.flags.match_complete, stays))?;
        if local {
            self.complete_posted(tx_cq, req, flags);
        }
        self.deferred = true;
        let at_once = self.cfg.aggregate_after;
        let now_please = match payload {
            true => self.coalescer.posted(len, waiting, at_once),
            false => self.coalescer.requested(len, waiting, at_once),
        };
        if !now_please {
            self.log_posted();
        }
        Ok(now_please)
    }

    /// Counts a posted remote operation as a send of its burst. `writes`: the operation is a write,
    /// whose bytes leave with it unless they wait for a grant. `true`: flush now.
    pub(crate) fn posted_remote(
        &mut self,
        (ep, dest): (EpId, FiAddr),
        iov: &[IoVec],
        writes: bool,
    ) -> bool {
        let (len, at_once) = (total(iov), self.cfg.aggregate_after);
        let peer = self.dir.peer_of(ep, dest);
        let endpoint = self.dir.ep(ep);
        let of_node = |(endpoint, peer): (&mut Endpoint, PeerId)| {
            let node = &endpoint.node;
            let ready = node.is_ready_for_put(peer, len as u64);
            (node.unsent_heads(peer), ready)
        };
        let (waiting, ready) = endpoint.zip(peer).map_or((0, false), of_node);
        match writes && (ready || self.is_short(len)) {
            true => self.coalescer.posted(len, waiting, at_once),
            false => self.coalescer.asked(len, waiting, at_once),
        }
    }

    /// Posts a message. A `matched` message starts with a request (RTS). So does one that `stays`
    /// in its caller's memory and follows others of a burst, so that it is copied only once; a lone
    /// message does not, since it would wait for request and grant. Returns whether payload may
    /// leave immediately, and the number of messages to this peer that are still queued.
    #[inline(always)]
    fn post(
        &mut self,
        ep: EpId,
        spec: &SendSpec,
        (matched, stays): (bool, bool),
    ) -> Result<(bool, usize), SubmitError> {
        let burst = stays && self.coalescer.follows(self.cfg.aggregate_after);
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let node = &mut endpoint.node;
        let asked = matched || (burst && node.copies_once(spec.peer));
        let payload = !asked && node.is_ready_for(spec.peer, spec.len);
        match asked {
            true => node.post_asked(spec),
            false => node.post_send(spec),
        };
        Ok((payload, node.unsent_heads(spec.peer)))
    }

    #[inline(always)]
    fn complete_posted(&mut self, cq: Option<CqId>, req: &SendReq<'_>, flags: u64) {
        let entry = Completion {
            context: req.context,
            flags,
            ..Completion::empty()
        };
        self.complete(cq, entry);
    }

    /// Copies the last posted message into the log, if its packet was sent before that copy was
    /// made. Runs before the posting call returns, because the memory then belongs to the user
    /// again.
    #[inline]
    pub(crate) fn log_posted(&mut self) {
        if let Some(handle) = self.unlogged.take() {
            self.log_late(handle);
        }
    }

    #[inline(never)]
    fn log_late(&mut self, handle: u32) {
        let skips = self.cfg.proto.errs(Mutation::LeaveUnlogged);
        let Some(op) = self.ops.sends.get_mut(handle).filter(|_| !skips) else {
            return; // or the send has already ended
        };
        let Some(log) = op.log.as_mut() else {
            return;
        };
        let (len, bytes) = (total(op.pieces.as_slice()), log.bytes());
        gather(op.pieces.as_slice(), bytes);
        let base = bytes.as_mut_ptr();
        op.pieces = Pieces::new(&[IoVec { base, len }]);
    }

    /// True if a message of `len` bytes, at most 64 KiB, fits into the log.
    pub(crate) fn logs(&self, len: usize) -> bool {
        let (used, unexpected) = self.buffers.pool.out_bytes();
        let bytes = used + unexpected + len;
        if self.cfg.proto.errs(Mutation::SharedLog) && bytes > self.cfg.log_bytes {
            return false;
        }
        self.draws_on_reserve(len) || self.buffers.pool.has_room(len)
    }

    /// True if enough was copied since the last brief poll of the rails.
    pub(crate) fn short_poll_due(&mut self) -> bool {
        let due = self.buffers.copied >= SHORT_POLL_BYTES;
        if due {
            self.buffers.copied = 0;
        }
        due
    }

    fn draws_on_reserve(&self, len: usize) -> bool {
        len <= RESERVE_MAX || self.cfg.proto.errs(Mutation::BoundlessLog)
    }

    /// Chooses where the bytes stay until they are acknowledged: in a log copy, with which the send
    /// completes immediately, or in the user's memory.
    fn send_op(&mut self, ep: EpId, req: &SendReq<'_>, len: usize) -> Result<SendOp, SubmitError> {
        let tx_cq = self.dir.ep(ep).and_then(|e| e.tx_cq);
        let kind = if req.tag.is_some() {
            flag::TAGGED
        } else {
            flag::MSG
        };
        let flags = flag::SEND | kind;
        let eager = len <= self.cfg.proto.eager_max as usize;
        let word = req.flags.wants_word();
        let borrows = eager && !word && tx_cq.is_some() && self.may_borrow(req, len);
        let log = req.flags.inject || (eager && !word && !borrows);
        let mut op = SendOp {
            ep,
            pieces: Pieces::new(&[]),
            log: None,
            on_delivery: tx_cq.filter(|_| req.flags.completion && (word || !log)),
            context: req.context,
            flags,
            serves: None,
            writes: 0,
            borrowed: 0,
            ended: None,
        };
        if log && len > 0 {
            let reserve = self.draws_on_reserve(len);
            let buffer = self.logs(len).then(|| self.buffers.pool.take(len, reserve));
            let Some(mut buffer) = buffer.flatten() else {
                self.counters.process.again += 1;
                return Err(SubmitError::Again);
            };
            self.buffers.copied += len;
            op.pieces = Pieces::new(req.iov);
            if len < LATE_MIN {
                gather(req.iov, buffer.bytes());
                let base = buffer.bytes().as_mut_ptr();
                op.pieces = Pieces::new(&[IoVec { base, len }]);
            }
            op.log = Some(buffer);
        } else if !log {
            op.pieces = Pieces::new(req.iov);
            if borrows {
                op.borrowed = self.ops.borrowed.next();
            }
        }
        Ok(op)
    }

    /// Posts a receive, or peeks at, claims or discards a message.
    pub fn recv(&mut self, now: u64, ep: EpId, req: &RecvReq<'_>) -> Result<(), SubmitError> {
        let enabled = self.dir.ep(ep).is_some_and(|e| e.enabled);
        if !enabled {
            return Err(SubmitError::Invalid);
        }
        if req.flags.peek {
            return self.peek(ep, req);
        }
        if req.flags.claim {
            return self.claimed(now, ep, req);
        }
        if req.flags.discard {
            return Err(SubmitError::Invalid);
        }
        let source = self.source(ep, req.source)?;
        let capacity = total(req.iov) as u64;
        let handle = self.ops.recvs.insert(RecvOp {
            ep,
            pieces: Pieces::new(req.iov),
            context: req.context,
            options: req.flags,
            tagged: req.tag.is_some(),
            role: Role::Receive,
            cancelled: false,
        });
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let multi_min = req.flags.multi_recv.then_some(endpoint.min_multi);
        let spec = RecvSpec {
            handle,
            source,
            tag: req.tag,
            capacity,
            multi_min,
        };
        endpoint.node.post_recv(&spec, now);
        self.settle();
        Ok(())
    }

    fn source(&mut self, ep: EpId, addr: FiAddr) -> Result<Source, SubmitError> {
        if addr == ADDR_UNSPEC {
            return Ok(Source::Any);
        }
        let peer = self.dir.peer_of(ep, addr).ok_or(SubmitError::BadAddress)?;
        Ok(Source::Peer(peer))
    }

    /// Completion of a peek that found a message.
    fn found(&mut self, ep: EpId, req: &RecvReq<'_>, peeked: &Peeked) -> Completion {
        let data = match peeked.head.flags & marline_wire::FLAG_CQ_DATA {
            0 => 0,
            _ => flag::REMOTE_CQ_DATA,
        };
        Completion {
            flags: received(req).flags | data,
            len: peeked.head.total as usize,
            tag: peeked.head.tag,
            data: peeked.head.data,
            source: self.dir.addr_of(ep, peeked.peer),
            ..received(req)
        }
    }

    /// Discards the message that a peek with this context claimed; the completion describes the
    /// message.
    fn discarded(&mut self, ep: EpId, req: &RecvReq<'_>, claim: Claim) -> Result<(), SubmitError> {
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let (cq, dropped) = (endpoint.rx_cq, endpoint.node.discard_claimed(claim));
        let entry = match dropped {
            Some(peeked) => self.found(ep, req, &peeked),
            None => Completion {
                error: Some(OpError::PeerDead),
                ..received(req)
            },
        };
        if req.flags.completion || entry.error.is_some() {
            self.complete(cq, entry);
        }
        self.settle();
        Ok(())
    }

    fn peek(&mut self, ep: EpId, req: &RecvReq<'_>) -> Result<(), SubmitError> {
        let source = self.source(ep, req.source)?;
        let spec = RecvSpec {
            handle: 0,
            source,
            tag: req.tag,
            capacity: 0,
            multi_min: None,
        };
        let set_aside = req.flags.claim || req.flags.discard;
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let cq = endpoint.rx_cq;
        let mut entry = received(req);
        let found = endpoint.node.peek(&spec, set_aside);
        match found {
            None => {
                self.peeked = true;
                entry.error = Some(OpError::NoMessage);
            }
            Some((peeked, claim)) => {
                entry = self.found(ep, req, &peeked);
                if let Some(claim) = claim {
                    if req.flags.discard {
                        if let Some(endpoint) = self.dir.ep(ep) {
                            endpoint.node.discard_claimed(claim);
                        }
                    } else {
                        self.ops.claims.insert((ep.0, req.context), claim);
                    }
                }
            }
        }
        self.complete(cq, entry);
        self.settle();
        Ok(())
    }

    /// Receives or discards the message that a peek with this context claimed.
    fn claimed(&mut self, now: u64, ep: EpId, req: &RecvReq<'_>) -> Result<(), SubmitError> {
        let claim = self
            .ops
            .claims
            .remove(&(ep.0, req.context))
            .ok_or(SubmitError::NotFound)?;
        if req.flags.discard {
            return self.discarded(ep, req, claim);
        }
        let capacity = total(req.iov) as u64;
        let handle = self.ops.recvs.insert(RecvOp {
            ep,
            pieces: Pieces::new(req.iov),
            context: req.context,
            options: req.flags,
            tagged: req.tag.is_some(),
            role: Role::Receive,
            cancelled: false,
        });
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        let spec = RecvSpec {
            handle,
            source: Source::Any,
            tag: req.tag,
            capacity,
            multi_min: None,
        };
        if !endpoint.node.recv_claimed(claim, &spec, now) {
            self.recv_failed(handle, OpError::PeerDead);
        }
        self.settle();
        Ok(())
    }

    /// Cancels the first posted receive with this context, or the first one that failed with its
    /// peer and whose failure is unread.
    pub fn cancel(&mut self, ep: EpId, context: usize) -> Result<(), SubmitError> {
        // A loopback message since the last poll may already have matched the receive.
        self.settle();
        let hits: Vec<u32> = self
            .ops
            .recvs
            .find(|op| op.ep == ep && op.context == context && op.role == Role::Receive);
        for handle in hits {
            let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
            if !endpoint.node.cancel_recv(handle) {
                continue;
            }
            if !endpoint.node.still_receives(handle) {
                self.recv_failed(handle, OpError::Cancelled);
            } else if let Some(op) = self.ops.recvs.get_mut(handle) {
                // The receive's memory stays in use until the messages that matched it have
                // arrived.
                op.cancelled = true;
            }
            return Ok(());
        }
        match self.dir.cancel_failed(ep, context) {
            true => Ok(()),
            false => Err(SubmitError::NotFound),
        }
    }
}

/// Completion of a receive, peek or claim without further details.
fn received(req: &RecvReq<'_>) -> Completion {
    let kind = match req.tag {
        Some(_) => flag::TAGGED,
        None => flag::MSG,
    };
    Completion {
        context: req.context,
        flags: flag::RECV | kind,
        ..Completion::empty()
    }
}

impl Completion {
    /// All fields zero, unknown source.
    pub const fn empty() -> Completion {
        Completion {
            context: 0,
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            source: ADDR_UNSPEC,
            error: None,
            olen: 0,
        }
    }
}
