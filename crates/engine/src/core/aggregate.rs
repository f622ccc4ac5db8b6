//! Short writes and atomics that follow each other into one region: as long as the RPC of the first
//! has not left, later ones share it. The peer does them in order, and answers once.

use crate::api::{EpId, FiAddr, IoVec, OpError};
use crate::core::rpc::Request;
use crate::core::submit::{gather, total};
use crate::core::Core;
use crate::memory::atomic::size_of_type;
use crate::memory::op_table::Pieces;
use crate::platform::system::System;
use crate::state::aggregate::{is_refused, refuse, Operations, Prefix, AGGREGATE_MAX};
use crate::state::rpcs::{id_of, Joined, LastRpc, Verb, Word, HEAD};
use marline_proto::{Mutation, PeerId};

/// The place of an RPC's data, which holds the length of the first operation of several.
const FIRST_LEN: std::ops::Range<usize> = HEAD - 8..HEAD;

/// Asking.
impl<S: System> Core<S> {
    /// Notes an RPC that was posted, if others may share it.
    pub(crate) fn note_last(&mut self, ep: EpId, req: &Request<'_>, rpc: u32, serial: u32) {
        let whose = (ep.0, req.peer.0);
        if !req.may_share() {
            self.rpcs.last.remove(&whose);
            return;
        }
        let payload = total(req.operands[0]);
        let last = LastRpc {
            rpc,
            id: id_of(serial, rpc),
            word: req.word,
            key: req.place.0,
            end: req.place.1.wrapping_add(payload as u64),
            first: req.length(),
            len: HEAD + payload,
        };
        self.rpcs.last.insert(whose, last);
    }

    /// Posts an operation in the RPC posted before it, if that RPC has not left and has room;
    /// `false`: the operation needs an RPC of its own.
    pub(crate) fn join(&mut self, ep: EpId, req: &Request<'_>) -> bool {
        let whose = (ep.0, req.peer.0);
        let Some(last) = self.rpcs.last.get(&whose).copied() else {
            return false;
        };
        let payload = total(req.operands[0]);
        let prefix = Prefix::new(req.place.1, req.length(), last.end);
        let len = last.len + prefix.as_slice().len() + payload;
        let alike = req.may_share() && last.takes(req.word, req.place.0);
        let full = self.rpcs.open.get(&whose).is_none_or(|open| open.is_full());
        if !alike || len > AGGREGATE_MAX || full || !self.logs(len) {
            return false;
        }
        let Some(endpoint) = self.dir.ep(ep) else {
            return false;
        };
        let words = (last.id, [last.word.pack(), last.word.shared().pack()]);
        let Some(handle) = endpoint.node.extend_rpc(req.peer, words, len as u64) else {
            return false;
        };
        self.append(handle, &last, prefix.as_slice(), (req.operands[0], len));
        if let Some(op) = self.rpcs.ops.get_mut(last.rpc) {
            op.joined.push(Joined {
                context: req.context,
                completion: req.completion,
                whole: req.whole,
            });
        }
        if let Some(open) = self.rpcs.open.get_mut(&whose) {
            open.operations += 1;
        }
        if let Some(last) = self.rpcs.last.get_mut(&whose) {
            last.end = req.place.1.wrapping_add(payload as u64);
            last.len = len;
        }
        self.counters.process.rpcs += 1;
        self.counters.process.aggregated += 1;
        self.deferred = true;
        true
    }

    /// Writes an operation behind those of an RPC, whose log copy grows to `len` bytes.
    fn append(
        &mut self,
        handle: u32,
        last: &LastRpc,
        prefix: &[u8],
        (operand, len): (&[IoVec], usize),
    ) {
        let Some(op) = self.ops.sends.get_mut(handle) else {
            return;
        };
        let grows = op.log.as_mut().is_none_or(|log| log.bytes().len() < len);
        if grows {
            let Some(mut longer) = self.buffers.pool.take(len, true) else {
                return; // (No RPC is as long.)
            };
            if let Some(mut before) = op.log.take() {
                longer.bytes()[..last.len].copy_from_slice(&before.bytes()[..last.len]);
                self.buffers.pool.give(before);
            }
            op.log = Some(longer);
        }
        let Some(log) = op.log.as_mut() else {
            return;
        };
        let bytes = &mut log.bytes()[..len];
        bytes[FIRST_LEN].copy_from_slice(&last.first.to_le_bytes());
        let payload_at = last.len + prefix.len();
        bytes[last.len..payload_at].copy_from_slice(prefix);
        gather(operand, &mut bytes[payload_at..]);
        let base = bytes.as_mut_ptr();
        op.pieces = Pieces::new(&[IoVec { base, len }]);
    }

    /// Handles the peer's answer to an RPC that several operations share; `refused`: the refused
    /// operations.
    pub(crate) fn answered_all(&mut self, rpc: u32, refused: Option<&[u8]>) {
        let Some(op) = self.rpcs.ops.get_mut(rpc) else {
            return;
        };
        let (ep, flags) = (op.ep, op.flags);
        let joined = std::mem::take(&mut op.joined);
        let end_of = |at| match refused {
            Some(refused) if is_refused(refused, at) => Err(OpError::BadRemoteMemory),
            _ => Ok(()),
        };
        self.end_rpc(rpc, end_of(0), &[]);
        for (at, one) in joined.into_iter().enumerate() {
            self.end_operation((ep, flags), one, end_of(at + 1));
        }
    }
}

/// Answering.
impl<S: System> Core<S> {
    /// Executes the operations of a shared RPC in order. Adds refused ones to `refused`.
    pub(crate) fn execute_all(
        &mut self,
        who: (EpId, PeerId, FiAddr),
        word: Word,
        bytes: &[u8],
        refused: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let found = Operations::of(bytes).filter(|_| word.flags == 0);
        let (key, operations) = found.ok_or(OpError::BadRemoteMemory)?;
        let size = match word.verb {
            Verb::Atomics => size_of_type(word.datatype),
            _ => Some(1),
        };
        let size = size.ok_or(OpError::BadRemoteMemory)?;
        let forgets = self.cfg.proto.errs(Mutation::ForgetAggregated);
        let mut nothing = Vec::new();
        let mut count = 0;
        for (at, one) in operations.enumerate() {
            let Ok(one) = one else {
                refused.clear();
                return Err(OpError::BadRemoteMemory);
            };
            if at > 0 && forgets {
                continue;
            }
            let word = word.alone(one.payload.len() / size, one.more);
            let contents = ((key, one.addr), 0, one.payload);
            if self.execute_at(who, word, contents, &mut nothing).is_err() {
                refuse(refused, at);
                count += 1;
            }
        }
        match count {
            0 => Ok(()),
            _ => Err(OpError::BadRemoteMemory),
        }
    }
}
