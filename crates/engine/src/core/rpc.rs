//! Short remote writes and atomics: an RPC to the peer, which the next poll of the application or
//! the progress thread executes there, and its reply. RPCs are messages, so each is executed
//! exactly once, in the order of its sender's messages. Operations on the endpoint's own memory are
//! executed at once.

use crate::api::{
    flag, AtomicKind, AtomicReq, Completion, Counted, EpId, IoVec, OpError, RemoteReq, SubmitError,
};
use crate::core::atomic::reads_only;
use crate::core::submit::{gather, total};
use crate::core::Core;
use crate::memory::atomic::op;
use crate::memory::op_table::{Pieces, SendOp};
use crate::memory::pool::Buffer;
use crate::platform::system::{System, Watch};
use crate::state::aggregate::length;
use crate::state::rpcs::{
    head, id_of, EndNotice, Joined, Part, RpcOp, Verb, Word, COMPARES, FETCHES, HAS_DATA, HEAD,
    MORE,
};
use marline_proto::{Mutation, PeerId};
use marline_wire::MsgHead;

/// The contents of an RPC.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) peer: PeerId,
    pub(crate) word: Word,
    /// Key and address.
    pub(crate) place: (u64, u64),
    data: u64,
    pub(crate) operands: [&'a [IoVec]; 2],
    result: &'a [IoVec],
    pub(crate) context: usize,
    pub(crate) completion: bool,
    flags: u64,
    /// Exempt from the limit of open RPCs, since other parts of its operation have already been
    /// sent.
    must: bool,
    /// The longer operation of which this is a part.
    pub(crate) whole: Option<u32>,
}

impl Request<'_> {
    /// Default values; no completion.
    const EMPTY: Request<'static> = Request {
        peer: PeerId(0),
        word: Word::new(Verb::Over, 0, 0),
        place: (0, 0),
        data: 0,
        operands: [&[], &[]],
        result: &[],
        context: 0,
        completion: false,
        flags: 0,
        must: false,
        whole: None,
    };

    /// Returns whether operations of the same kind may share this operation's RPC: it returns no
    /// result and has no CQ data, and it is either whole or the part that follows the part before.
    pub(crate) fn may_share(&self) -> bool {
        let kind = matches!(self.word.verb, Verb::Write | Verb::Atomic);
        kind && self.word.flags & !MORE == 0
    }

    /// Encoded length of the payload in a shared RPC.
    pub(crate) fn length(&self) -> u64 {
        length(total(self.operands[0]), self.word.flags & MORE != 0)
    }
}

/// The requesting side.
impl<S: System> Core<S> {
    /// Sends the write `req` as an RPC.
    pub(crate) fn rpc_write(
        &mut self,
        now: u64,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        place: (u64, u64),
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let flags = req.data.map_or(0, |_| HAS_DATA) | part.map_or(0, |part| part.flags);
        let request = Request {
            peer,
            word: Word::new(Verb::Write, flags, 0),
            place,
            data: req.data.unwrap_or(0),
            operands: [req.iov, &[]],
            result: &[],
            context: req.context,
            completion: req.flags.completion,
            flags: flag::RMA | flag::WRITE,
            must: part.is_some(),
            whole: part.map(|part| part.whole),
        };
        self.rpc(now, ep, &request)
    }

    /// Posts an atomic operation that fits an RPC, or a part of a longer one.
    pub(crate) fn rpc_atomic(
        &mut self,
        now: u64,
        ep: EpId,
        req: &AtomicReq<'_>,
        (addr, elements, key): (u64, usize, u64),
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let peer = self
            .dir
            .peer_of(ep, req.dest)
            .ok_or(SubmitError::BadAddress)?;
        if !self.dir.ep(ep).is_some_and(|e| e.enabled) {
            return Err(SubmitError::Invalid);
        }
        let kind = req.kind;
        let reads = reads_only(req);
        let compare = kind == AtomicKind::Compare;
        let fetches = kind != AtomicKind::Plain;
        let word = Word {
            verb: Verb::Atomic,
            datatype: req.datatype,
            op: req.op,
            flags: (FETCHES * fetches as u8)
                | (COMPARES * compare as u8)
                | part.map_or(0, |part| part.flags),
            count: elements as u32,
        };
        let request = Request {
            peer,
            word,
            place: (key, addr),
            data: 0,
            operands: [
                if reads { &[] } else { req.operands },
                if compare { req.compare } else { &[] },
            ],
            result: if fetches { req.result } else { &[] },
            context: req.context,
            completion: req.flags.completion,
            flags: flag::ATOMIC | if fetches { flag::READ } else { flag::WRITE },
            must: part.is_some(),
            whole: part.map(|part| part.whole),
        };
        self.rpc(now, ep, &request)
    }

    fn rpc(&mut self, now: u64, ep: EpId, req: &Request<'_>) -> Result<(), SubmitError> {
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if endpoint.node.peer_gone(req.peer) {
            return Err(SubmitError::PeerDead);
        }
        let own = endpoint.node.is_loopback(req.peer);
        let may_share = req.may_share() && !own;
        if may_share && self.join(ep, req) {
            self.watch.may_share(true);
            return Ok(());
        }
        let open = self.rpcs.open.get(&(ep.0, req.peer.0)).copied();
        let len = HEAD + req.operands.iter().map(|iov| total(iov)).sum::<usize>();
        let many = open.is_some_and(|open| open.is_full());
        if (many || !self.logs(len)) && !req.must {
            self.counters.process.again += 1;
            return Err(SubmitError::Again);
        }
        let Some(mut buffer) = self.buffers.pool.take(len, true) else {
            return Err(SubmitError::Invalid); // longer than an RPC may be
        };
        let bytes = &mut buffer.bytes()[..len];
        bytes[..HEAD].copy_from_slice(&head(req.place, req.data));
        let first = total(req.operands[0]);
        gather(req.operands[0], &mut bytes[HEAD..HEAD + first]);
        gather(req.operands[1], &mut bytes[HEAD + first..]);
        self.counters.process.rpcs += 1;
        self.rpcs.serial = self.rpcs.serial.wrapping_add(1);
        let serial = self.rpcs.serial;
        let op = RpcOp {
            ep,
            peer: req.peer,
            serial,
            context: req.context,
            completion: req.completion,
            flags: req.flags,
            result: Pieces::new(req.result),
            whole: req.whole,
            joined: Vec::new(),
        };
        let rpc = self.rpcs.ops.insert(op);
        if own {
            self.rpc_loopback(ep, req, rpc, (buffer, len));
            return Ok(());
        }
        let words = (id_of(serial, rpc), req.word.pack());
        if !self.post_logged(ep, req.peer, words, Some(buffer), len) {
            self.rpcs.ops.remove(rpc);
            return Err(SubmitError::PeerDead);
        }
        if may_share {
            self.watch.may_share(false);
        }
        let counted = self.rpcs.open.entry((ep.0, req.peer.0)).or_default();
        counted.rpcs += 1;
        counted.operations += 1;
        self.note_last(ep, req, rpc, serial);
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint.remote_open += 1;
            if open.is_none() {
                endpoint.node.watch_peer(now, req.peer, true);
            }
        }
        Ok(())
    }

    /// Executes an RPC of an endpoint to itself.
    fn rpc_loopback(&mut self, ep: EpId, req: &Request<'_>, rpc: u32, request: (Buffer, usize)) {
        let (mut buffer, len) = request;
        let source = self.dir.addr_of(ep, req.peer);
        let mut result = std::mem::take(&mut self.calls_result);
        result.clear();
        let done = self.execute(
            (ep, req.peer, source),
            req.word,
            &buffer.bytes()[..len],
            &mut result,
        );
        self.buffers.pool.give(buffer);
        self.end_rpc(rpc, done, &result);
        self.calls_result = result;
    }

    /// Posts `len` bytes of a log buffer as an RPC; `false`: the peer is gone.
    fn post_logged(
        &mut self,
        ep: EpId,
        peer: PeerId,
        words: (u64, u64),
        mut log: Option<Buffer>,
        len: usize,
    ) -> bool {
        let base = log.as_mut().map(|b| b.bytes().as_mut_ptr());
        let piece = base.map(|base| IoVec { base, len });
        let handle = self.ops.sends.insert(SendOp {
            ep,
            pieces: Pieces::new(piece.as_slice()),
            log,
            on_delivery: None,
            context: 0,
            flags: 0,
            serves: None,
            writes: 0,
            borrowed: 0,
            ended: None,
        });
        let endpoint = self.dir.ep(ep);
        let posted = endpoint.is_some_and(|e| e.node.post_rpc(handle, peer, words, len as u64));
        if posted {
            self.deferred = true;
        } else if let Some(buffer) = self.ops.sends.remove(handle).and_then(|op| op.log) {
            self.buffers.pool.give(buffer);
        }
        posted
    }

    /// Ends an RPC, because the peer executed or refused it, or is gone.
    pub(crate) fn end_rpc(&mut self, rpc: u32, end: Result<(), OpError>, result: &[u8]) {
        let Some(op) = self.rpcs.ops.remove(rpc) else {
            return;
        };
        let mut at = 0;
        op.result.for_range(0, result.len(), |base, n| {
            // SAFETY: the pieces are memory that the caller lent until this operation ends, which
            // is now; the pieces together are at least as long as the requested result.
            unsafe { std::ptr::copy_nonoverlapping(result[at..at + n].as_ptr(), base, n) };
            at += n;
        });
        let first = Joined {
            context: op.context,
            completion: op.completion,
            whole: op.whole,
        };
        self.end_operation((op.ep, op.flags), first, end);
        for &one in &op.joined {
            self.end_operation((op.ep, op.flags), one, end);
        }
    }

    /// Ends an operation, or a part of one.
    pub(crate) fn end_operation(
        &mut self,
        (ep, flags): (EpId, u64),
        op: Joined,
        end: Result<(), OpError>,
    ) {
        let context = op.context;
        let end = match op.whole {
            Some(whole) => self.part_over(whole, end, (ep, context, flags)),
            None => Some(end),
        };
        let Some(end) = end.filter(|_| flags != 0) else {
            return; // other parts are under way, or it is told
        };
        self.watch.sent(context, end);
        let Some(endpoint) = self.dir.ep(ep) else {
            return;
        };
        let counted = match flags & flag::READ {
            0 => Counted::Writes,
            _ => Counted::Reads,
        };
        endpoint.count(counted, end.is_ok());
        let (cq, last) = (endpoint.tx_cq, endpoint.remote_open == 0);
        self.answered |= last;
        if op.completion || end.is_err() {
            let entry = Completion {
                context,
                flags,
                error: end.err(),
                ..Completion::empty()
            };
            self.complete(cq, entry);
        }
    }

    /// Closes an open RPC, with `operations` operations, to a peer.
    fn close_rpc(&mut self, ep: EpId, peer: PeerId, operations: usize) {
        let Some(open) = self.rpcs.open.get_mut(&(ep.0, peer.0)) else {
            return;
        };
        open.rpcs -= 1;
        open.operations -= operations as u32;
        let last = open.rpcs == 0;
        let now = self.polled_ns;
        if last {
            self.rpcs.open.remove(&(ep.0, peer.0));
            self.rpcs.last.remove(&(ep.0, peer.0));
        }
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint.remote_open -= 1;
            if last {
                endpoint.node.watch_peer(now, peer, false);
            }
        }
    }

    /// Ends all RPCs to a peer that is gone.
    pub(crate) fn fail_rpcs(&mut self, ep: EpId, peer: PeerId) {
        self.rpcs.runs.remove(&(ep.0, peer.0));
        self.ops.forget_parts(|of, by| (of, by) == (ep.0, peer.0));
        if !self.rpcs.open.contains_key(&(ep.0, peer.0)) {
            return;
        }
        for rpc in self.rpcs.ops.find(|op| op.ep == ep && op.peer == peer) {
            let joined = self.rpcs.ops.get(rpc).map_or(0, |op| op.joined.len());
            self.close_rpc(ep, peer, 1 + joined);
            self.end_rpc(rpc, Err(OpError::PeerDead), &[]);
        }
    }

    /// Forgets the RPCs of a closed endpoint.
    pub(crate) fn forget_rpcs(&mut self, ep: EpId) {
        for rpc in self.rpcs.ops.find(|op| op.ep == ep) {
            self.rpcs.ops.remove(rpc);
        }
        for whole in self.rpcs.wholes.find(|whole| whole.ep == ep) {
            self.rpcs.wholes.remove(whole);
            self.rpcs.puts.retain(|_, of| *of != whole);
            self.rpcs.reads.retain(|_, of| *of != whole);
        }
        self.rpcs.open.retain(|&(of, _), _| of != ep.0);
        self.rpcs.last.retain(|&(of, _), _| of != ep.0);
        self.rpcs.runs.retain(|&(of, _), _| of != ep.0);
        self.ops.forget_parts(|of, _| of == ep.0);
    }

    /// Tells the peer that all parts of an operation have ended successfully.
    pub(crate) fn send_trailer(
        &mut self,
        (ep, context, flags): (EpId, usize, u64),
        trailer: &EndNotice,
    ) -> Result<(), SubmitError> {
        let Some((&first, others)) = trailer.keys.as_slice().split_first() else {
            return Ok(());
        };
        let fetches = FETCHES * trailer.reads as u8;
        let notice = Request {
            peer: trailer.peer,
            must: true,
            ..Request::EMPTY
        };
        for &of in others {
            self.rpc_over(ep, of, fetches | MORE, notice)?;
        }
        let Some((place, data, len)) = trailer.data else {
            return self.rpc_over(ep, first, fetches, notice);
        };
        self.watch.data_follows(context);
        let request = Request {
            word: Word {
                op: first.1,
                ..Word::new(Verb::Write, HAS_DATA, len)
            },
            place,
            data,
            context,
            completion: trailer.completion,
            flags,
            ..notice
        };
        self.rpc(self.polled_ns, ep, &request)
    }

    /// Reads no bytes of a place (an atomic read without elements).
    pub(crate) fn rpc_read(
        &mut self,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        place: (u64, u64),
    ) -> Result<(), SubmitError> {
        let request = Request {
            peer,
            word: Word {
                op: op::READ,
                ..Word::new(Verb::Atomic, FETCHES, 0)
            },
            place,
            context: req.context,
            completion: req.flags.completion,
            flags: flag::RMA | flag::READ,
            ..Request::EMPTY
        };
        self.rpc(self.polled_ns, ep, &request)
    }

    /// Tells the peer that an operation with this many parts in a region is over.
    fn rpc_over(
        &mut self,
        ep: EpId,
        (key, parts): (u64, u8),
        flags: u8,
        request: Request<'_>,
    ) -> Result<(), SubmitError> {
        let word = Word {
            op: parts,
            ..Word::new(Verb::Over, flags, 0)
        };
        let place = (key, 0);
        let request = Request {
            word,
            place,
            ..request
        };
        self.rpc(self.polled_ns, ep, &request)?;
        if let Some(endpoint) = self.dir.ep(ep) {
            self.watch.parts_done(&endpoint.node, request.peer, key);
        }
        Ok(())
    }
}

/// The executing side.
impl<S: System> Core<S> {
    /// Handles an RPC or a reply from a peer. The bounce buffer belongs to this function.
    pub(crate) fn on_rpc(&mut self, ep: EpId, peer: PeerId, msg: &MsgHead, bounce: u64) {
        let Some(mut buffer) = self.buffers.bounces.remove(&(ep.0, bounce)) else {
            return;
        };
        let Some(bytes) = buffer.bytes().get(..msg.total as usize) else {
            return self.buffers.pool.give(buffer);
        };
        match Word::unpack(msg.data) {
            Some(word) if word.verb == Verb::Answer => {
                self.answered((ep, peer), msg.tag, word, bytes);
            }
            Some(word) => self.answer((ep, peer), msg.tag, word, bytes),
            None => self.answer_with((ep, peer), msg.tag, Err(OpError::BadRemoteMemory), &[]),
        }
        self.buffers.pool.give(buffer);
    }

    /// Handles a peer's reply to a local RPC.
    fn answered(&mut self, (ep, peer): (EpId, PeerId), id: u64, word: Word, result: &[u8]) {
        let (rpc, serial) = (id as u32, (id >> 32) as u32);
        let ours = |op: &&RpcOp| (op.ep, op.peer, op.serial) == (ep, peer, serial);
        let Some(op) = self.rpcs.ops.get(rpc).filter(ours) else {
            return;
        };
        let (wanted, joined) = (total(op.result.as_slice()), op.joined.len());
        if joined > 0 {
            self.close_rpc(ep, peer, 1 + joined);
            return self.answered_all(rpc, (word.count > 0).then_some(result));
        }
        let (end, result) = match word.count {
            0 if result.len() == wanted => (Ok(()), result),
            _ => (Err(OpError::BadRemoteMemory), &[][..]),
        };
        self.close_rpc(ep, peer, 1);
        self.end_rpc(rpc, end, result);
    }

    fn answer(&mut self, (ep, peer): (EpId, PeerId), id: u64, word: Word, bytes: &[u8]) {
        let source = self.dir.addr_of(ep, peer);
        let mut result = std::mem::take(&mut self.calls_result);
        result.clear();
        let done = self.execute((ep, peer, source), word, bytes, &mut result);
        self.answer_with((ep, peer), id, done, &result);
        self.served = true;
        self.calls_result = result;
    }

    fn answer_with(
        &mut self,
        (ep, peer): (EpId, PeerId),
        id: u64,
        done: Result<(), OpError>,
        result: &[u8],
    ) {
        let hides = self.cfg.proto.errs(Mutation::HideRefusal);
        let word = Word {
            verb: Verb::Answer,
            datatype: 0,
            op: 0,
            flags: 0,
            count: (done.is_err() && !hides) as u32,
        };
        // The requester bounds the number of replies, and a reply must not wait for room.
        let mut log = match result.len() {
            0 => None,
            len => self.buffers.pool.take(len, true),
        };
        if let Some(buffer) = log.as_mut() {
            buffer.bytes()[..result.len()].copy_from_slice(result);
        }
        self.post_logged(ep, peer, (id, word.pack()), log, result.len());
    }
}
