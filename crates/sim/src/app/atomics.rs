//! Atomic operations of applications on cells of peers (`cells`) and their own.

use crate::app::ops::draw_cuts;
use crate::truth::elements::{self, op};
use crate::truth::memory::{Buffer, OpKind};
use crate::truth::remote::{Ask, Atomic, AtomicOp, Call, NONE, SHORT_MAX};
use crate::world::endpoint::Due;
use crate::world::state::World;
use crate::world::trace::Trace;
use marline_engine::{AtomicKind, AtomicReq, Completion, IoVec, OpError, OpFlags, SubmitError};

/// Posting.
impl World {
    fn draw_atomic(&mut self, dst: u32) -> (Atomic, AtomicKind) {
        let (key, len) = self.find_cells(dst);
        let rng = &mut self.windows_rng;
        let (datatype, size, (kind, op)) = elements::draw(rng);
        let compares = kind == AtomicKind::Compare;
        let most = SHORT_MAX as usize / size / (1 + compares as usize);
        // Operations too long for an RPC go in several.
        let count = match rng.below(16) {
            0 => rng.range(1, most as u64) as usize,
            1 => most,
            2 => most + 1,
            3 => rng.range(most as u64, len / size as u64 - 1) as usize,
            _ => rng.range(1, 3) as usize,
        };
        let bytes = (count * size) as u64;
        // Usually the same few cells; sometimes others, cells beyond the end, or an invalid key.
        let addr = match rng.below(16) {
            0 => len - bytes + size as u64,
            1..=4 => rng.below(len - bytes + 1) / size as u64 * size as u64,
            _ => 0,
        };
        let key = if rng.one_in(16) { key + 1 } else { key };
        let cut = match count > 1 && rng.one_in(4) {
            true => rng.range(1, count as u64 - 1) as usize,
            false => 0,
        };
        let operands = if op == op::READ { 0 } else { count };
        let compare = if compares { count } else { 0 };
        let what = Atomic {
            key,
            addr,
            datatype,
            size,
            op,
            count,
            cut,
            fetches: kind != AtomicKind::Plain,
            operands: elements::operands(rng, datatype, operands),
            compare: elements::operands(rng, datatype, compare),
        };
        (what, kind)
    }

    /// Posts an atomic operation.
    pub(crate) fn post_atomic(&mut self, e: u32, dst: u32) {
        let (mut what, kind) = self.draw_atomic(dst);
        let entry = !self.windows_rng.one_in(4);
        let room = if what.fetches {
            what.count * what.size
        } else {
            0
        };
        let mut buffer = Buffer::new(room);
        let cuts = draw_cuts(&mut self.windows_rng, room);
        let dest = self.addr(e, dst);
        let ep = &mut self.eps[e as usize];
        let (operands, compare) = (piece(&mut what.operands), piece(&mut what.compare));
        let request = AtomicReq {
            dest,
            kind,
            datatype: what.datatype,
            op: what.op,
            operands: &operands,
            compare: if what.compare.is_empty() {
                &[]
            } else {
                &compare
            },
            result: &buffer.pieces(&cuts),
            remote: &what.places(),
            context: ep.ops.len() + 1,
            flags: OpFlags {
                completion: entry,
                ..OpFlags::default()
            },
        };
        let result = ep.engine.atomic(ep.ep, &request);
        let parts = what.parts(NONE);
        let bytes: Vec<usize> = parts.iter().map(|part| part.what.bytes().len()).collect();
        if self.call_left_out(e, dst, &bytes, result) {
            return;
        }
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        let fetches = what.fetches;
        *self
            .troubles
            .entry(elements::name(what.datatype))
            .or_default() += 1;
        let op = AtomicOp {
            dst,
            what,
            parts,
            entry,
            ..AtomicOp::default()
        };
        if self.tracing {
            let text = format!("atomic {} to {dst}: {op:?}", ep.ops.len());
            ep.note(now, Trace::Did(text));
        }
        let handle = ep.add_op(OpKind::Atomic(Box::new(op)), buffer, now, false);
        ep.open += 1;
        self.counts(dst, fetches);
        self.call_parts(e, dst, handle);
        self.accepted(e, "atomic", result);
    }

    /// Sends the RPCs of an atomic operation, or applies the operation to the caller's own cells.
    fn call_parts(&mut self, e: u32, dst: u32, handle: u32) {
        let parts = self.atomic_mut(e, handle).map_or(0, |op| op.parts.len());
        if parts > 1 {
            *self.troubles.entry("atomic in parts").or_default() += 1;
        }
        for at in 0..parts {
            if dst == e {
                if let Err(text) = self.operate(e, e, (handle, at)) {
                    self.broken(e, text);
                }
                continue;
            }
            let bytes = self
                .atomic_mut(e, handle)
                .map(|op| op.parts[at].what.bytes());
            let mut call = Call::new(Ask::Atomic(handle, at), bytes.unwrap_or_default());
            call.more = at + 1 < parts;
            let uid = self.add_call(e, dst, 0, call);
            self.join_calls(e, uid);
            if let Some(op) = self.atomic_mut(e, handle) {
                op.parts[at].uid = uid;
                let fetches = op.what.fetches;
                self.eps[dst as usize].windows.cells.fetching += fetches as u32;
            }
        }
    }

    /// A part of an atomic operation was refused.
    pub(crate) fn is_refused(&mut self, e: u32, (handle, part): (u32, usize)) -> bool {
        let op = self.atomic_mut(e, handle);
        op.is_some_and(|op| op.parts[part].old == Some(None))
    }

    fn atomic_mut(&mut self, e: u32, handle: u32) -> Option<&mut AtomicOp> {
        match &mut self.eps[e as usize].ops.get_mut(handle as usize)?.kind {
            OpKind::Atomic(op) => Some(op),
            _ => None,
        }
    }

    /// True if RPCs of these lengths were refused with good reason: their log is full, or very many
    /// RPCs are open.
    pub(crate) fn call_left_out(
        &mut self,
        e: u32,
        dst: u32,
        bytes: &[usize],
        result: Result<(), SubmitError>,
    ) -> bool {
        match result {
            Err(SubmitError::Again) => {
                self.absorb(e);
                *self.troubles.entry("call without room").or_default() += 1;
                // The limit is 1,024 open RPCs, and an operation may need eight. A short RPC may
                // have a longer buffer.
                if self.eps[e as usize].open < 120 {
                    let bytes = bytes.iter().map(|len| (len + 24).max(128)).sum();
                    self.check_refused(e, dst, bytes);
                }
                true
            }
            Err(SubmitError::PeerDead) => {
                if !self.lost_peer(e, dst) {
                    self.broken(e, format!("call to live peer {dst} refused"));
                }
                true
            }
            _ => false,
        }
    }
}

/// An iovec list of one piece; the engine copies the list during the call.
fn piece(bytes: &mut [u8]) -> [IoVec; 1] {
    [IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    }]
}

/// Completion.
impl World {
    /// The engine reports the end of an atomic operation.
    pub(crate) fn atomic_over(
        &mut self,
        e: u32,
        handle: u32,
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let op = self
            .atomic_mut(e, handle)
            .ok_or("not an atomic operation")?;
        if op.over.replace(end.is_ok()).is_some() {
            return Err(format!("atomic {handle} ends twice"));
        }
        let (dst, entry, fetches) = (op.dst, op.entry, op.what.fetches);
        let old: Option<Vec<_>> = op.parts.iter().map(|part| part.old.clone()).collect();
        let old: Option<Option<Vec<_>>> = old.map(|old| old.into_iter().collect());
        let uids: Vec<u32> = op.parts.iter().map(|part| part.uid).collect();
        let refused: Vec<bool> = op.parts.iter().map(|part| part.old == Some(None)).collect();
        let answers = |uid: &u32| {
            let msg = self.truth.msgs.get(*uid as usize);
            let call = msg.and_then(|msg| msg.call.as_ref());
            *uid == NONE || call.is_some_and(|call| call.answered)
        };
        let answered = uids.iter().all(answers);
        // A peer may die between the answers to two parts.
        let refused = uids
            .iter()
            .zip(refused)
            .any(|(uid, refused)| refused && answers(uid))
            && (answered || self.lost_peer(e, dst));
        let called = uids.iter().filter(|uid| **uid != NONE).count() as u32;
        self.eps[dst as usize].windows.cells.fetching -= called * fetches as u32;
        if end.is_ok() {
            self.counts_done(dst, fetches);
        }
        let buffer = &self.eps[e as usize].ops[handle as usize].buffer;
        match (end, old) {
            (Ok(()), Some(Some(old))) if answered => {
                if fetches && buffer.get(0, buffer.len()) != Some(&old.concat()[..]) {
                    return Err(format!("atomic {handle} fetched what was not there"));
                }
            }
            (Err(OpError::BadRemoteMemory), _) if refused => {}
            (Err(OpError::PeerDead), _) => {
                self.prompt(e, handle, dst)?;
                if !self.lost_peer(e, dst) {
                    return Err(format!("atomic {handle} failed, but endpoint {dst} lives"));
                }
            }
            (end, old) => {
                let found = old.map(|old| old.is_some());
                return Err(format!(
                    "atomic {handle} ends {end:?}, and it found {found:?}"
                ));
            }
        }
        if end.is_err() || entry {
            return Ok(());
        }
        self.end_without_entry(e, handle)
    }

    pub(crate) fn atomic_completed(
        &mut self,
        e: u32,
        handle: u32,
        entry: &Completion,
    ) -> Result<Due, String> {
        let op = self
            .atomic_mut(e, handle)
            .ok_or("not an atomic operation")?;
        if entry.flags != op.flags() {
            return Err("wrong flags".into());
        }
        let due = op.entry || entry.error.is_some();
        if !due || op.over != Some(entry.error.is_none()) {
            return Err(format!("atomic {handle} is not what its entry says"));
        }
        self.end(e, handle)?;
        self.eps[e as usize].open -= 1;
        Ok(Due::of(entry))
    }
}
