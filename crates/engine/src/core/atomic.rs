//! Posts atomic operations, in parts if they are too long for one RPC or name several remote
//! pieces. Each element belongs to one part, and each part is executed once, like every RPC. The
//! operation ends with its last part.

use crate::api::{AtomicKind, AtomicReq, EpId, SubmitError};
use crate::core::submit::total;
use crate::core::Core;
use crate::memory::atomic::{is_valid, op, size_of_type};
use crate::memory::op_table::Pieces;
use crate::platform::system::System;
use crate::state::rpcs::{Part, Whole, HEAD, MORE, OPEN_MAX, PAYLOAD_MAX};

/// Longest operation in bytes.
const BYTES_MAX: usize = 64 << 10;

impl<S: System> Core<S> {
    /// Posts an atomic operation.
    pub fn atomic(&mut self, now: u64, ep: EpId, req: &AtomicReq<'_>) -> Result<(), SubmitError> {
        let kind = req.kind;
        let size = size_of_type(req.datatype).ok_or(SubmitError::Invalid)?;
        let mut counts = req.remote.iter().map(|(_, count, _)| *count);
        let elements = counts.try_fold(0, usize::checked_add).unwrap_or(0);
        if !is_valid(kind, req.datatype, req.op) || elements > atomic_max(kind, size) {
            return Err(SubmitError::Invalid);
        }
        let len = elements * size;
        let fits = (reads_only(req) || total(req.operands) == len)
            && (kind != AtomicKind::Compare || total(req.compare) == len)
            && (kind == AtomicKind::Plain || total(req.result) == len);
        if !fits || elements == 0 {
            return Err(SubmitError::Invalid);
        }
        let most = rpc_max(kind, size);
        match *req.remote {
            [place] if elements <= most => self.rpc_atomic(now, ep, req, place, None),
            _ => self.atomic_parts(now, ep, req, (size, most)),
        }
    }

    /// Posts an atomic in RPCs of at most `most` elements of `size` bytes, each within one remote
    /// piece.
    fn atomic_parts(
        &mut self,
        now: u64,
        ep: EpId,
        req: &AtomicReq<'_>,
        (size, most): (usize, usize),
    ) -> Result<(), SubmitError> {
        let peer = self
            .dir
            .peer_of(ep, req.dest)
            .ok_or(SubmitError::BadAddress)?;
        let cut = |&(addr, elements, key): &(u64, usize, u64)| {
            (0..elements).step_by(most).map(move |first| {
                let addr = addr.wrapping_add((first * size) as u64);
                (addr, most.min(elements - first), key)
            })
        };
        let parts: Vec<_> = req.remote.iter().flat_map(cut).collect();
        let operands = match (reads_only(req), req.kind) {
            (true, _) => 0,
            (_, AtomicKind::Compare) => 2,
            _ => 1,
        };
        let room = operands == 0 || {
            let rpcs = parts
                .iter()
                .map(|(_, count, _)| HEAD + operands * count * size);
            self.buffers.pool.has_room_for(rpcs)
        };
        let open = self.rpcs.open.get(&(ep.0, peer.0)).copied();
        if open.map_or(0, |open| open.rpcs) as usize + parts.len() > OPEN_MAX as usize || !room {
            self.counters.process.again += 1;
            return Err(SubmitError::Again);
        }
        let (left, end) = (parts.len(), Ok(()));
        let whole = self.rpcs.wholes.insert(Whole {
            ep,
            left,
            end,
            trailer: None,
        });
        let all = [req.operands, req.compare, req.result].map(Pieces::new);
        let mut first = 0;
        for (i, &place) in parts.iter().enumerate() {
            let len = place.1 * size;
            let [operands, compare, result] = [0, 1, 2].map(|of: usize| all[of].range(first, len));
            let part = AtomicReq {
                operands: operands.as_slice(),
                compare: compare.as_slice(),
                result: result.as_slice(),
                ..*req
            };
            let flags = if i + 1 < parts.len() { MORE } else { 0 };
            let of = Some(Part { whole, flags });
            if let Err(error) = self.rpc_atomic(now, ep, &part, place, of) {
                self.rpcs.wholes.remove(whole);
                debug_assert_eq!(first, 0, "what refuses a part refuses the first");
                return Err(error);
            }
            first += len as u64;
        }
        Ok(())
    }
}

/// True if the operation ignores its operands.
pub(crate) fn reads_only(req: &AtomicReq<'_>) -> bool {
    req.kind == AtomicKind::Fetch && req.op == op::READ
}

/// Most elements of `size` bytes in one atomic operation. The same for all kinds, since Intel MPI
/// applies the smallest limit to all (docs/design/mpi.md).
pub fn atomic_max(_: AtomicKind, size: usize) -> usize {
    BYTES_MAX / size
}

/// Most elements of `size` bytes in one RPC.
pub(crate) fn rpc_max(kind: AtomicKind, size: usize) -> usize {
    let operands = match kind {
        AtomicKind::Compare => 2,
        _ => 1,
    };
    PAYLOAD_MAX / (size * operands)
}
