//! Short remote writes and atomics: a call to the peer, done there by whoever polls (its progress
//! thread, if nobody does), and its answer. Calls are messages, so each is done exactly once, in
//! the order of its sender's messages; all are done under the engine's lock, so they are atomic
//! against each other. The endpoint's own memory is worked on at once.

use crate::api::{
    flag, AtomicKind, AtomicReq, Completion, Counted, EpId, FiAddr, IoVec, OpError, RemoteReq,
    SubmitError,
};
use crate::core::atomic::{call_max, reads_only};
use crate::core::submit::{gather, total};
use crate::memory::atomic::{apply, is_valid, size_of_type};
use crate::memory::op_table::{Pieces, SendOp};
use crate::memory::pool::Buffer;
use crate::platform::system::{System, Watch};
use crate::state::calls::{
    head, parse, CallOp, Part, Trailer, Verb, Word, COMPARES, FETCHES, HAS_DATA, HEAD, OPEN_MAX,
    PART,
};
use crate::state::core::Core;
use crate::state::operations::Range;
use marline_proto::{Claim, Event, Mutation, PeerId};
use marline_wire::MsgHead;

/// The contents of a call.
struct Request<'a> {
    peer: PeerId,
    word: Word,
    /// Key and address.
    place: (u64, u64),
    data: u64,
    operands: [&'a [IoVec]; 2],
    result: &'a [IoVec],
    context: usize,
    completion: bool,
    flags: u64,
    /// It goes whatever is open: part of it is done.
    must: bool,
    /// The longer operation that it is a part of.
    whole: Option<u32>,
}

/// Asking.
impl<S: System> Core<S> {
    /// Writes `req` in a call.
    pub(crate) fn call_write(
        &mut self,
        now: u64,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        place: (u64, u64),
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let word = Word {
            verb: Verb::Write,
            datatype: 0,
            op: 0,
            flags: req.data.map_or(0, |_| HAS_DATA) | part_flag(part),
            count: 0,
        };
        let request = Request {
            peer,
            word,
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
        self.call(now, ep, &request)
    }

    /// Posts an atomic operation that a call has room for; it may be a part of a longer one.
    pub(crate) fn atomic_call(
        &mut self,
        now: u64,
        ep: EpId,
        req: &AtomicReq<'_>,
        part: Option<Part>,
    ) -> Result<(), SubmitError> {
        let peer = self
            .dir
            .peer_of(ep, req.dest)
            .ok_or(SubmitError::BadAddress)?;
        if !self.dir.ep(ep).is_some_and(|e| e.enabled) {
            return Err(SubmitError::Invalid);
        }
        let (kind, (addr, elements, key)) = (req.kind, req.remote);
        let reads = reads_only(req);
        let compare = kind == AtomicKind::Compare;
        let fetches = kind != AtomicKind::Plain;
        let word = Word {
            verb: Verb::Atomic,
            datatype: req.datatype,
            op: req.op,
            flags: (FETCHES * fetches as u8) | (COMPARES * compare as u8) | part_flag(part),
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
        self.call(now, ep, &request)
    }

    fn call(&mut self, now: u64, ep: EpId, req: &Request<'_>) -> Result<(), SubmitError> {
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if endpoint.node.peer_gone(req.peer) {
            return Err(SubmitError::PeerDead);
        }
        let own = endpoint.node.is_own(req.peer);
        let open = self.calls.open.get(&(ep.0, req.peer.0)).copied();
        let len = HEAD + req.operands.iter().map(|iov| total(iov)).sum::<usize>();
        let many = open.unwrap_or(0) >= OPEN_MAX;
        if (many || !self.logs(len)) && !req.must {
            self.counters.process.again += 1;
            return Err(SubmitError::Again);
        }
        let Some(mut buffer) = self.buffers.pool.take(len, true) else {
            return Err(SubmitError::Invalid); // longer than any call may be
        };
        let bytes = &mut buffer.bytes()[..len];
        bytes[..HEAD].copy_from_slice(&head(req.place, req.data));
        let first = total(req.operands[0]);
        gather(req.operands[0], &mut bytes[HEAD..HEAD + first]);
        gather(req.operands[1], &mut bytes[HEAD + first..]);
        self.counters.process.calls += 1;
        self.calls.serial = self.calls.serial.wrapping_add(1);
        let serial = self.calls.serial;
        let op = CallOp {
            ep,
            peer: req.peer,
            serial,
            context: req.context,
            completion: req.completion,
            flags: req.flags,
            result: Pieces::new(req.result),
            whole: req.whole,
        };
        let call = self.calls.ops.insert(op);
        if own {
            self.call_own(ep, req, call, (buffer, len));
            return Ok(());
        }
        let words = ((u64::from(serial) << 32) | u64::from(call), req.word.pack());
        if !self.post_logged(ep, req.peer, words, Some(buffer), len) {
            self.calls.ops.remove(call);
            return Err(SubmitError::PeerDead);
        }
        *self.calls.open.entry((ep.0, req.peer.0)).or_default() += 1;
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint.remote_open += 1;
            if open.is_none() {
                endpoint.node.watch_peer(now, req.peer, true);
            }
        }
        Ok(())
    }

    /// A call of an endpoint to itself.
    fn call_own(&mut self, ep: EpId, req: &Request<'_>, call: u32, request: (Buffer, usize)) {
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
        self.end_call(call, done, &result);
        self.calls_result = result;
    }

    /// Posts `len` bytes of a log buffer as a call; `false`: the peer is gone.
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
        let posted = endpoint.is_some_and(|e| e.node.post_call(handle, peer, words, len as u64));
        if posted {
            self.deferred = true;
        } else if let Some(buffer) = self.ops.sends.remove(handle).and_then(|op| op.log) {
            self.buffers.pool.give(buffer);
        }
        posted
    }

    /// A call is over: the peer has done it, has refused it, or is gone.
    fn end_call(&mut self, call: u32, end: Result<(), OpError>, result: &[u8]) {
        let Some(op) = self.calls.ops.remove(call) else {
            return;
        };
        let mut at = 0;
        op.result.for_range(0, result.len(), |base, n| {
            // SAFETY: the pieces are memory that the caller lent until this operation ends, which
            // is now; the pieces together are no shorter than what was asked for.
            unsafe { std::ptr::copy_nonoverlapping(result[at..at + n].as_ptr(), base, n) };
            at += n;
        });
        let end = match op.whole {
            Some(whole) => self.part_over(whole, end, (op.ep, op.context, op.flags)),
            None => Some(end),
        };
        let Some(end) = end.filter(|_| op.flags != 0) else {
            return; // other parts are under way, or it is told
        };
        self.watch.sent(op.context, end);
        let Some(endpoint) = self.dir.ep(op.ep) else {
            return;
        };
        let counted = match op.flags & flag::READ {
            0 => Counted::Writes,
            _ => Counted::Reads,
        };
        endpoint.count(counted, end.is_ok());
        let (cq, last) = (endpoint.tx_cq, endpoint.remote_open == 0);
        self.answered |= last;
        if op.completion || end.is_err() {
            let entry = Completion {
                context: op.context,
                flags: op.flags,
                error: end.err(),
                ..Completion::empty()
            };
            self.complete(cq, entry);
        }
    }

    /// One call less is open at a peer.
    fn close_call(&mut self, ep: EpId, peer: PeerId) {
        let Some(open) = self.calls.open.get_mut(&(ep.0, peer.0)) else {
            return;
        };
        *open -= 1;
        let last = *open == 0;
        let now = self.polled_ns;
        if last {
            self.calls.open.remove(&(ep.0, peer.0));
        }
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint.remote_open -= 1;
            if last {
                endpoint.node.watch_peer(now, peer, false);
            }
        }
    }

    /// A peer is gone: so are its answers.
    pub(crate) fn fail_calls(&mut self, ep: EpId, peer: PeerId) {
        if !self.calls.open.contains_key(&(ep.0, peer.0)) {
            return;
        }
        for call in self.calls.ops.find(|op| op.ep == ep && op.peer == peer) {
            self.close_call(ep, peer);
            self.end_call(call, Err(OpError::PeerDead), &[]);
        }
    }

    /// Forgets the calls of an endpoint that has closed.
    pub(crate) fn forget_calls(&mut self, ep: EpId) {
        for call in self.calls.ops.find(|op| op.ep == ep) {
            self.calls.ops.remove(call);
        }
        for whole in self.calls.wholes.find(|whole| whole.ep == ep) {
            self.calls.wholes.remove(whole);
            self.calls.puts.retain(|_, of| *of != whole);
            self.calls.reads.retain(|_, of| *of != whole);
        }
        self.calls.open.retain(|&(of, _), _| of != ep.0);
    }

    /// All parts of an operation have ended well: the peer is told.
    pub(crate) fn send_trailer(
        &mut self,
        (ep, context, flags): (EpId, usize, u64),
        trailer: &Trailer,
    ) -> Result<(), SubmitError> {
        let (place, data, len) = trailer.data.unwrap_or_default();
        let (verb, flags_there) = match trailer.data {
            Some(_) => (Verb::Write, HAS_DATA),
            None => (Verb::Over, FETCHES * trailer.reads as u8),
        };
        let word = Word {
            verb,
            datatype: 0,
            op: 0,
            flags: flags_there,
            count: len,
        };
        let request = Request {
            peer: trailer.peer,
            word,
            place,
            data,
            operands: [&[], &[]],
            result: &[],
            context,
            completion: trailer.completion,
            flags,
            must: true,
            whole: None,
        };
        self.call(self.polled_ns, ep, &request)
    }
}

/// Answering.
impl<S: System> Core<S> {
    /// A peer calls, or answers. The bounce buffer is ours.
    pub(crate) fn called(&mut self, ep: EpId, peer: PeerId, msg: &MsgHead, bounce: u64) {
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

    /// A peer has answered a call of ours.
    fn answered(&mut self, (ep, peer): (EpId, PeerId), id: u64, word: Word, result: &[u8]) {
        let (call, serial) = (id as u32, (id >> 32) as u32);
        let ours = |op: &&CallOp| (op.ep, op.peer, op.serial) == (ep, peer, serial);
        let Some(op) = self.calls.ops.get(call).filter(ours) else {
            return;
        };
        let wanted = total(op.result.as_slice());
        let (end, result) = match word.count {
            0 if result.len() == wanted => (Ok(()), result),
            _ => (Err(OpError::BadRemoteMemory), &[][..]),
        };
        self.close_call(ep, peer);
        self.end_call(call, end, result);
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
        // The caller bounds how many there are, and none may wait for room
        let mut log = match result.len() {
            0 => None,
            len => self.buffers.pool.take(len, true),
        };
        if let Some(buffer) = log.as_mut() {
            buffer.bytes()[..result.len()].copy_from_slice(result);
        }
        self.post_logged(ep, peer, (id, word.pack()), log, result.len());
    }

    /// Does what a call asks for; what it fetched goes to `result`.
    fn execute(
        &mut self,
        (ep, peer, source): (EpId, PeerId, FiAddr),
        word: Word,
        bytes: &[u8],
        result: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let (place, data, payload) = parse(bytes).ok_or(OpError::BadRemoteMemory)?;
        let done = match word.verb {
            Verb::Write => self.write_here((ep, peer), place, payload),
            Verb::Over => Some(()),
            _ => self.operate_here(word, place, payload, result),
        };
        let len = match word.verb {
            Verb::Write => payload.len() as u64,
            _ => u64::from(word.count),
        };
        if done.is_none() {
            let range = (place.0, place.1, len);
            self.say_refused(ep, peer, "writes (or an atomic's)", range);
            return Err(OpError::BadRemoteMemory);
        }
        let (fetches, part) = (word.flags & FETCHES != 0, word.flags & PART != 0);
        if let Some(endpoint) = self.dir.ep(ep).filter(|_| !part) {
            let counted = match fetches {
                true => Counted::RemoteReads,
                false => Counted::RemoteWrites,
            };
            endpoint.count(counted, true);
        }
        if word.flags & HAS_DATA != 0 {
            // (Behind a write in parts or a long one comes the data alone.)
            let len = payload.len().max(word.count as usize);
            self.tell_written(ep, source, data, len);
        }
        Ok(())
    }

    fn write_here(
        &mut self,
        (ep, peer): (EpId, PeerId),
        (key, addr): (u64, u64),
        payload: &[u8],
    ) -> Option<()> {
        let len = payload.len() as u64;
        if let Some(endpoint) = self.dir.eps[ep.0 as usize].as_ref() {
            let claim = Claim::default();
            let asked = Event::PutAsked {
                peer,
                claim,
                key,
                addr,
                len,
            };
            self.watch.event(&endpoint.node, &asked);
        }
        let place = self.place_of((key, addr, len), (false, true))?;
        let mut at = 0;
        place.for_range(0, payload.len(), |base, n| {
            // SAFETY: `place_of` found the range inside of memory that is registered, and stays
            // there until `mr_close`, which needs the engine's lock as this does. Whoever else
            // works on it meanwhile breaks the rules of the memory's users.
            unsafe { std::ptr::copy(payload[at..at + n].as_ptr(), base, n) };
            at += n;
        });
        Some(())
    }

    fn operate_here(
        &mut self,
        word: Word,
        (key, addr): (u64, u64),
        payload: &[u8],
        result: &mut Vec<u8>,
    ) -> Option<()> {
        let (fetches, compares) = (word.flags & FETCHES != 0, word.flags & COMPARES != 0);
        let kind = match (fetches, compares) {
            (_, true) => AtomicKind::Compare,
            (true, _) => AtomicKind::Fetch,
            _ => AtomicKind::Plain,
        };
        let size = size_of_type(word.datatype)?;
        let elements = word.count as usize;
        if !is_valid(kind, word.datatype, word.op) || elements > call_max(kind, size) {
            return None;
        }
        let len = elements * size;
        let changes = word.op != crate::memory::atomic::op::READ;
        let operands = usize::from(changes) + usize::from(compares);
        if payload.len() != operands * len {
            return None;
        }
        let range = (key, addr, len as u64);
        let place = self.place_of(range, (fetches, changes))?;
        let twice = self.cfg.proto.errs(Mutation::RepeatAtomic);
        let (operand, compare) = payload.split_at(len.min(payload.len()));
        in_one(&place, len, |target| {
            if fetches {
                result.extend_from_slice(target);
            }
            apply(word.datatype, word.op, target, operand, compare);
            if twice {
                apply(word.datatype, word.op, target, operand, compare);
            }
        });
        Some(())
    }

    /// The memory that a call names, if all of it is registered for what it does: reads, writes.
    fn place_of(&self, (key, addr, len): Range, may: (bool, bool)) -> Option<Pieces> {
        let found = self.ops.region_at((key, addr, len), may);
        if found.is_none() && self.cfg.proto.errs(Mutation::CallClosed) {
            return self.ops.region_at((!key, addr, len), may);
        }
        if found.is_none() && self.cfg.proto.errs(Mutation::AnyKey) {
            let mut keys = self.ops.regions.keys();
            return keys.find_map(|&key| self.ops.region_at((key, addr, len), may));
        }
        found
    }

    /// The entry of a remote write that brought data.
    pub(crate) fn tell_written(&mut self, ep: EpId, source: FiAddr, data: u64, len: usize) {
        let cq = self.dir.ep(ep).and_then(|e| e.rx_cq);
        let entry = Completion {
            flags: flag::RMA | flag::REMOTE_WRITE | flag::REMOTE_CQ_DATA,
            len,
            data,
            source,
            ..Completion::empty()
        };
        self.complete(cq, entry);
    }
}

/// The flag of a call that is a part.
fn part_flag(part: Option<Part>) -> u8 {
    match part {
        Some(Part { counts: false, .. }) => PART,
        _ => 0,
    }
}

/// Works on `len` bytes of registered memory, which `place` is: in place, or on a copy of what lies
/// in several pieces, whose elements may lie in two.
fn in_one(place: &Pieces, len: usize, work: impl FnOnce(&mut [u8])) {
    if let Some(base) = place.whole(0, len) {
        // SAFETY: as in `write_here`; no other reference to it is alive.
        return work(unsafe { std::slice::from_raw_parts_mut(base, len) });
    }
    let mut copy = vec![0; len];
    gather(place.as_slice(), &mut copy);
    work(&mut copy);
    let mut at = 0;
    place.for_range(0, len, |base, n| {
        // SAFETY: as in `write_here`.
        unsafe { std::ptr::copy_nonoverlapping(copy[at..at + n].as_ptr(), base, n) };
        at += n;
    });
}
