//! Executes and counts RPCs of peers (and of the endpoint itself) on registered memory. The
//! engine's lock makes RPCs atomic with respect to each other.

use crate::api::{flag, AtomicKind, Completion, Counted, EpId, FiAddr, OpError};
use crate::core::atomic::rpc_max;
use crate::core::submit::gather;
use crate::core::Core;
use crate::memory::atomic::{apply, is_valid, op, size_of_type};
use crate::memory::op_table::Pieces;
use crate::memory::visible::show;
use crate::platform::system::{System, Watch};
use crate::state::regions::Range;
use crate::state::requests::is_well_formed;
use crate::state::rpcs::{parse, Run, Verb, Word, COMPARES, FETCHES, HAS_DATA, MORE, PART};
use marline_proto::{Claim, Event, Mutation, PeerId};
use std::ptr::NonNull;

impl<S: System> Core<S> {
    /// Executes an RPC; fetched values go to `result`.
    pub(crate) fn execute(
        &mut self,
        (ep, peer, source): (EpId, PeerId, FiAddr),
        word: Word,
        bytes: &[u8],
        result: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let contents = parse(bytes).filter(|&((_, addr), data, payload)| {
            !self.ops.refusals.all && is_well_formed(word, addr, data, payload)
        });
        let Some(contents) = contents else {
            let all = self.ops.refusals.all;
            self.refuse(ep, peer, || match all {
                true => "asks for a remote operation".to_owned(),
                false => "sends a remote operation that no engine makes".to_owned(),
            });
            return Err(OpError::BadRemoteMemory);
        };
        if matches!(word.verb, Verb::Writes | Verb::Atomics) {
            return self.execute_all((ep, peer, source), word, bytes, result);
        }
        self.execute_at((ep, peer, source), word, contents, result)
    }

    /// Does what one operation requests, with the given place, data and payload.
    pub(crate) fn execute_at(
        &mut self,
        (ep, peer, source): (EpId, PeerId, FiAddr),
        word: Word,
        (place, data, payload): ((u64, u64), u64, &[u8]),
        result: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let done = match word.verb {
            Verb::Write => self.write_here((ep, peer), place, payload),
            Verb::Over => Some(()),
            _ => self.operate_here(word, place, payload, result),
        };
        let len = match word.verb {
            Verb::Write => payload.len() as u64,
            _ => u64::from(word.count),
        };
        self.count_rpc((ep, peer), word, place.0, done.is_some());
        if done.is_none() {
            let range = (place.0, place.1, len);
            self.refuse_range(ep, peer, "writes (or an atomic's)", range);
            return Err(OpError::BadRemoteMemory);
        }
        if word.flags & HAS_DATA != 0 {
            // After a write in parts or a long write, a separate message carries the data.
            let len = payload.len().max(word.count as usize);
            self.report_written(ep, source, data, len);
        }
        Ok(())
    }

    /// Counts the operation of an RPC in those regions of its parts that still exist, if this is
    /// the operation's only or last RPC and none was refused.
    fn count_rpc(&mut self, (ep, peer): (EpId, PeerId), word: Word, key: u64, done: bool) {
        let whose = (ep.0, peer.0);
        let (part, more) = (word.flags & PART != 0, word.flags & MORE != 0);
        let stated = if word.verb == Verb::Atomic {
            0
        } else {
            word.op
        };
        let fetches = word.flags & FETCHES != 0;
        let parts_of = (ep.0, peer.0, fetches);
        let alone = stated == 0 && !part && !more && !self.rpcs.runs.contains_key(&whose);
        if stated == 0 && done && !alone {
            self.ops.part_came(key, parts_of);
        }
        if part {
            return;
        }
        let mut run: Run = self.rpcs.runs.remove(&whose).unwrap_or_default();
        run.failed |= !done;
        if stated > 0 || done {
            run.keys.add(key, stated.max(1));
        }
        if more {
            self.rpcs.runs.insert(whose, run);
            return;
        }
        let counted = match fetches {
            true => Counted::RemoteReads,
            false => Counted::RemoteWrites,
        };
        // A fetching atomic that changes memory both reads and writes it.
        let changes = !fetches || word.verb == Verb::Atomic && word.op != op::READ;
        let anywhere = self.cfg.proto.errs(Mutation::CountAnywhere);
        for &(key, parts) in run.keys.as_slice() {
            let here = alone || self.ops.take_parts(key, parts_of, parts) || anywhere;
            if here && !run.failed {
                self.count_region(key, [fetches, changes]);
            }
        }
        if !run.failed {
            self.count(ep, counted, true);
        }
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
        show(&place, 0, payload, true);
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
        if !is_valid(kind, word.datatype, word.op) || elements > rpc_max(kind, size) {
            return None;
        }
        let len = elements * size;
        let changes = word.op != op::READ;
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

    /// The memory that an RPC names, if all of it is registered for the access (read, write).
    fn place_of(&self, (key, addr, len): Range, may: (bool, bool)) -> Option<Pieces> {
        let found = self.ops.region_at((key, addr, len), may);
        if found.is_none() && self.cfg.proto.errs(Mutation::RpcClosed) {
            return self.ops.region_at((!key, addr, len), may);
        }
        if found.is_none() && self.cfg.proto.errs(Mutation::AnyKey) {
            let mut keys = self.ops.regions.keys();
            return keys.find_map(|&key| self.ops.region_at((key, addr, len), may));
        }
        found
    }

    /// Reports a remote write with its data as a completion.
    pub(crate) fn report_written(&mut self, ep: EpId, source: FiAddr, data: u64, len: usize) {
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

/// Works on `len` bytes of registered memory: in place, or on a copy if the memory is in several
/// pieces, where an element may span two.
fn in_one(place: &Pieces, len: usize, work: impl FnOnce(&mut [u8])) {
    if let Some(base) = place.whole(0, len).and_then(NonNull::new) {
        // SAFETY: `place_of` has checked that the range is registered, and it stays valid until
        // `mr_close`, which needs the engine's lock as this function does; no other reference to it
        // exists. Concurrent accesses by the program break the rules for users of the memory.
        return work(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) });
    }
    let mut copy = vec![0; len];
    gather(place.as_slice(), &mut copy);
    work(&mut copy);
    let mut at = 0;
    place.for_range(0, len, |base, n| {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(copy[at..at + n].as_ptr(), base, n) };
        at += n;
    });
}
