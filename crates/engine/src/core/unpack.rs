//! Copies received payload into memory, with its checksum in the same pass.

use crate::memory::copy::{place, scatter, sum_of};
use crate::memory::op_table::{OpTable, RecvOp};
use crate::memory::sums::{Owner, Part};
use crate::memory::visible::show;
use crate::state::buffers::Buffers;
use crate::state::rails::Rails;
use marline_checksum::{copy_and_sum, sum, Algorithm, Seed, SumKey};
use marline_proto::{Landing, Memory, Payload, WriteCheck, WrittenSum};
use marline_rails::RailTx;

/// The engine's memory, lent to a node for one packet.
pub struct EngineMemory<'a, T> {
    /// Posted receives and reads.
    pub recvs: &'a OpTable<RecvOp>,
    /// Bounce buffers of unexpected messages.
    pub buffers: &'a mut Buffers,
    /// The rails, with the memory that peers may write.
    pub rails: &'a mut Rails<T>,
    /// Endpoint index.
    pub ep: u32,
    /// Key of the payloads' sums, for a keyed algorithm.
    pub key: SumKey,
}

impl<T: RailTx> Memory for EngineMemory<'_, T> {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let Some(algorithm) = Algorithm::from_u8(payload.algorithm) else {
            return false;
        };
        let seed = Seed::keyed(payload.seed, self.key);
        let checked_only = matches!(landing, Landing::Discard);
        if payload.verify_first || checked_only {
            let right = sum(algorithm, seed, payload.bytes) == payload.sum;
            if !right || checked_only {
                return right;
            }
        }
        let found = match *landing {
            Landing::Posted {
                handle,
                offset,
                copy,
            } => {
                let Some(op) = self.recvs.get(handle) else {
                    return false;
                };
                scatter(&op.pieces, offset, copy, payload, (algorithm, seed))
            }
            Landing::Bounce {
                inbound,
                total,
                offset,
            } => {
                let Some(to) = self.bounce_at(inbound, total, offset, payload.bytes.len()) else {
                    return false;
                };
                let (from, len) = (payload.bytes.as_ptr(), payload.bytes.len());
                // SAFETY: `bounce_at` checked the range; no other code uses the buffer.
                unsafe { copy_and_sum(algorithm, seed, to, from, len) }
            }
            Landing::Discard => return false,
        };
        found == payload.sum
    }

    fn show(&mut self, handle: u32, offset: u64, bytes: &[u8], last: bool) {
        if let Some(op) = self.recvs.get(handle) {
            show(&op.pieces, offset, bytes, last);
        }
    }

    fn written(&mut self, landing: &Landing, written: &WrittenSum) -> WriteCheck {
        let rails = &mut *self.rails;
        let keys = rails.rkeys.get(&(self.ep, written.inbound));
        let (at, len) = (written.at, written.len as u64);
        let landed = |&(rail, key): &(u8, u64)| rails.list[rail as usize].tx.landed(key, at, len);
        if keys.is_some_and(|keys| !keys.iter().any(landed)) {
            return WriteCheck::Missing;
        }
        // A write may have landed before its key ended.
        let wrong = keys.map_or(WriteCheck::Missing, |_| WriteCheck::Wrong);
        let Some(algorithm) = Algorithm::from_u8(written.algorithm) else {
            return wrong;
        };
        let &Landing::Posted { handle, offset, .. } = landing else {
            return wrong; // only posted memory is granted
        };
        let Some(op) = self.recvs.get(handle) else {
            return wrong;
        };
        let range = (offset, written.len);
        // Summed after the copy to the final place: a late write may still change the staging
        // buffer.
        let by = |key: &&(u8, u64)| written.rail == Some(key.0);
        if let Some(&(rail, key)) = keys.and_then(|keys| keys.iter().find(by)) {
            let tx = &rails.list[rail as usize].tx;
            let staged = tx.unstage(key, at, written.len, &mut |bytes| {
                place(&op.pieces, offset, bytes);
            });
            if staged && algorithm == Algorithm::None {
                return wrong; // without a checksum the owner of the bytes is unknown
            }
        }
        let seed = Seed::keyed(written.seed, self.key);
        let own = || sum_of(&op.pieces, range, algorithm, seed, false);
        let sum = match written.rail {
            Some(_) => own(),
            None => {
                // Workers may already have summed read bytes.
                let part = Part {
                    of: Owner::Inbound(self.ep, written.inbound),
                    offset: at,
                    len: written.len,
                    algorithm,
                    seed: written.seed,
                };
                let made = rails.sums.take(&part);
                made.unwrap_or_else(|| rails.sums.own(part.len, own))
            }
        };
        if sum != written.sum {
            for &(rail, _) in keys.into_iter().flatten() {
                rails.list[rail as usize].tx.damaged();
            }
            return wrong;
        }
        for &(rail, key) in keys.into_iter().flatten() {
            rails.list[rail as usize].tx.seal(key, at, len);
        }
        WriteCheck::Right
    }

    fn deregister(&mut self, inbound: u64) {
        self.rails.deregister((self.ep, inbound));
    }
}

impl<T> EngineMemory<'_, T> {
    /// Address of bytes `offset .. offset + len` of a bounce buffer, allocated on first use.
    fn bounce_at(&mut self, inbound: u64, total: u64, offset: u64, len: usize) -> Option<*mut u8> {
        let key = (self.ep, inbound);
        if !self.buffers.bounces.contains_key(&key) {
            let buffer = self.buffers.pool.take_unexpected(total as usize)?;
            self.buffers.bounces.insert(key, buffer);
        }
        let buffer = self.buffers.bounces.get_mut(&key)?;
        let range = offset as usize..offset as usize + len;
        Some(buffer.bytes().get_mut(range)?.as_mut_ptr())
    }
}
