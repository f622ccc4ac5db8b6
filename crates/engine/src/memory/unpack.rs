//! Payload into memory: copy and sum in one pass, wherever a received fragment belongs.

use crate::core::remote_write::{revoke, Rkeys};
use crate::core::state::RailState;
use crate::memory::op_table::{OpTable, Pieces, RecvOp};
use crate::memory::pool::{Buffer, Pool};
use marline_checksum::{copy_and_sum, prefetch_for_write, sum, Algorithm, Summer};
use marline_proto::{Landing, Lies, Memory, Payload, WrittenSum};
use marline_rails::RailTx;
use std::collections::BTreeMap;

/// Bounce buffers of unexpected messages, by (endpoint index, inbound name).
pub type Bounces = BTreeMap<(u32, u64), Buffer>;

/// The engine's memory, lent to a node for one packet.
pub struct EngineMemory<'a, T> {
    /// Posted receives and reads.
    pub recvs: &'a OpTable<RecvOp>,
    /// Bounce buffers.
    pub bounces: &'a mut Bounces,
    /// Where they come from.
    pub pool: &'a mut Pool,
    /// What peers may write into.
    pub rkeys: &'a mut Rkeys,
    /// On which rails.
    pub rails: &'a mut [RailState<T>],
    /// Endpoint index.
    pub ep: u32,
}

impl<T: RailTx> Memory for EngineMemory<'_, T> {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let Some(algorithm) = Algorithm::from_u8(payload.algorithm) else {
            return false;
        };
        let checked_only = matches!(landing, Landing::Discard);
        if payload.verify_first || checked_only {
            let right = sum(algorithm, payload.seed, payload.bytes) == payload.sum;
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
                scatter(&op.pieces, offset, copy, payload, algorithm)
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
                // SAFETY: `bounce_at` checked the range; the buffer is ours alone.
                unsafe { copy_and_sum(algorithm, payload.seed, to, from, len) }
            }
            Landing::Discard => return false,
        };
        found == payload.sum
    }

    fn written(&mut self, landing: &Landing, written: &WrittenSum) -> Lies {
        let keys = self.rkeys.get(&(self.ep, written.inbound));
        let (at, len) = (written.at, written.len as u64);
        let landed = |&(rail, key): &(u8, u64)| self.rails[rail as usize].tx.landed(key, at, len);
        if keys.is_some_and(|keys| !keys.iter().any(landed)) {
            return Lies::Nothing;
        }
        // What is not granted any more may have landed before.
        let wrong = keys.map_or(Lies::Nothing, |_| Lies::Wrong);
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
        if sum_of(&op.pieces, range, algorithm, written.seed, false) != written.sum {
            for &(rail, _) in keys.into_iter().flatten() {
                self.rails[rail as usize].tx.damaged();
            }
            return wrong;
        }
        for &(rail, key) in keys.into_iter().flatten() {
            self.rails[rail as usize].tx.seal(key, at, len);
        }
        Lies::Right
    }

    fn revoke(&mut self, inbound: u64) {
        revoke(self.rkeys, self.rails, (self.ep, inbound));
    }
}

/// Spoils memory that is to be written: a word in each cache line of `len` bytes (at least one
/// word) at `base`. What lay there may be what is to come: its sum would be right before the write
/// has landed, which may then still damage it.
pub(crate) fn spoil(base: *mut u8, len: usize, word: u64) {
    const WORD: usize = size_of::<u64>();
    let last = len.saturating_sub(WORD);
    for at in (0..last).step_by(64).chain([last]) {
        // SAFETY: memory of a receive of which nothing has arrived, all of which the message will
        // fill; the caller says how long it is, and that it holds a word.
        unsafe { base.add(at).cast::<u64>().write_unaligned(word) };
    }
}

/// Sum of `len` bytes from `offset` of an operation's memory, where they are. `far`: in no near
/// cache.
pub(crate) fn sum_of(
    pieces: &Pieces,
    (offset, len): (u64, usize),
    algorithm: Algorithm,
    seed: u64,
    far: bool,
) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    pieces.for_range(offset, len, |base, len| {
        // SAFETY: user memory (or the log) lent to an operation that is not complete; its pieces
        // say how long it is. What a rail still writes there changes no more than the sum.
        let bytes = unsafe { std::slice::from_raw_parts(base, len) };
        match far {
            true => summer.update_far(bytes),
            false => summer.update(bytes),
        }
    });
    summer.finish()
}

/// Copies the first `copy` bytes of a payload into posted memory; the sum of all of it.
#[inline]
fn scatter(
    pieces: &Pieces,
    offset: u64,
    copy: usize,
    payload: &Payload<'_>,
    algorithm: Algorithm,
) -> u64 {
    let bytes = payload.bytes;
    if let Some(base) = pieces
        .whole(offset, bytes.len())
        .filter(|_| copy == bytes.len())
    {
        // SAFETY: user memory posted for this receive, which the node keeps until the message is
        // complete; `whole` says that all of the range is in one piece.
        let sum =
            unsafe { copy_and_sum(algorithm, payload.seed, base, bytes.as_ptr(), bytes.len()) };
        if pieces.whole(offset, 2 * bytes.len()).is_some() && bytes.len() >= 1024 {
            prefetch_for_write(base.wrapping_add(bytes.len()), bytes.len());
        }
        return sum;
    }
    let mut summer = Summer::new(algorithm, payload.seed);
    let mut at = 0;
    pieces.for_range(offset, copy.min(bytes.len()), |base, len| {
        // SAFETY: as above, piece by piece; `at + len <= bytes.len()`.
        unsafe { summer.copy(base, bytes.as_ptr().add(at), len) };
        at += len;
    });
    summer.update(&bytes[at..]);
    summer.finish()
}

impl<T> EngineMemory<'_, T> {
    /// Address of bytes `offset .. offset + len` of a bounce buffer, made on first use.
    fn bounce_at(&mut self, inbound: u64, total: u64, offset: u64, len: usize) -> Option<*mut u8> {
        let key = (self.ep, inbound);
        if !self.bounces.contains_key(&key) {
            let buffer = self.pool.take_unexpected(total as usize)?;
            self.bounces.insert(key, buffer);
        }
        let buffer = self.bounces.get_mut(&key)?;
        let range = offset as usize..offset as usize + len;
        Some(buffer.bytes().get_mut(range)?.as_mut_ptr())
    }
}

/// Copies the first `len` bytes of one operation's memory to `offset` in another's.
pub(crate) fn copy(from: &Pieces, to: &Pieces, offset: u64, len: usize) {
    let mut at = offset;
    from.for_range(0, len, |source, n| {
        let mut source = source.cast_const();
        to.for_range(at, n, |base, m| {
            // SAFETY: both are user memory (or the log) lent to operations that are not complete;
            // their pieces say how long they are. A user may have lent one range twice.
            unsafe { std::ptr::copy(source, base, m) };
            source = source.wrapping_add(m);
        });
        at += n as u64;
    });
}

#[cfg(test)]
mod tests {
    use super::{copy, spoil};
    use crate::api::IoVec;
    use crate::memory::op_table::Pieces;

    /// No 64 bytes stay as they were, nor the last word; what lies around does.
    #[test]
    fn every_line_of_granted_memory_is_spoilt() {
        for len in [8, 9, 63, 64, 65, 72, 128, 1_000] {
            let mut bytes = vec![7u8; len + 2];
            spoil(bytes[1..].as_mut_ptr(), len, u64::MAX);
            let (rkeys, around) = (&bytes[1..=len], [bytes[0], bytes[len + 1]]);
            assert!(rkeys.chunks(64).all(|line| line.contains(&255)), "{len}");
            assert!(rkeys.ends_with(&[255; 8]), "{len}");
            assert_eq!(around, [7, 7], "{len}");
        }
    }

    fn pieces(bytes: &mut [u8], cuts: &[usize]) -> Pieces {
        let base = bytes.as_mut_ptr();
        let spans = cuts.windows(2).map(|w| IoVec {
            base: base.wrapping_add(w[0]),
            len: w[1] - w[0],
        });
        Pieces::new(&spans.collect::<Vec<_>>())
    }

    #[test]
    fn pieces_of_any_cut_are_copied_to_where_they_belong_and_no_further() {
        let mut from: Vec<u8> = (0..100).collect();
        for (cuts, cuts_to) in [
            (&[0, 100][..], &[0, 120][..]),
            (&[0, 1, 1, 50, 100], &[0, 10, 11, 60, 90, 120]),
        ] {
            for (offset, len) in [(0, 100), (7, 0), (13, 99), (20, 100)] {
                let mut to = vec![0xee; 120];
                let (a, b) = (pieces(&mut from, cuts), pieces(&mut to, cuts_to));
                copy(&a, &b, offset as u64, len);
                let mut right = vec![0xee; 120];
                right[offset..offset + len].copy_from_slice(&from[..len]);
                assert!(to == right, "{cuts:?} to {cuts_to:?}: {len} at {offset}");
            }
        }
    }
}
