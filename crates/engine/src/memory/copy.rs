//! Checksums and copies of payload: in one pass, or sums in place.

use crate::memory::op_table::Pieces;
use marline_checksum::{copy_and_sum, prefetch_for_write, Algorithm, Seed, Summer};
use marline_proto::Payload;

/// Poisons memory that will be written by RDMA: changes a word in each cache line of `len` bytes at
/// `base`, or every byte if it is shorter than a word. The old contents may equal the new ones:
/// their checksum would be right before the write has landed, and the write could still damage the
/// memory later.
pub(crate) fn poison(base: *mut u8, len: usize, word: u64) {
    const WORD: usize = size_of::<u64>();
    if len < WORD {
        for at in 0..len {
            // SAFETY: as below.
            unsafe { base.add(at).write(word as u8) };
        }
        return;
    }
    let last = len - WORD;
    for at in (0..last).step_by(64).chain([last]) {
        // SAFETY: memory of a receive for which nothing has arrived, all of which the message will
        // fill; the caller gives its length.
        unsafe { base.add(at).cast::<u64>().write_unaligned(word) };
    }
}

/// Checksum of `len` bytes from `offset` of an operation's memory, in place. `far`: the bytes are
/// in no near cache.
pub(crate) fn sum_of(
    pieces: &Pieces,
    (offset, len): (u64, usize),
    algorithm: Algorithm,
    seed: Seed,
    far: bool,
) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    pieces.for_range(offset, len, |base, len| {
        // SAFETY: user memory (or the log) lent to an operation that is not complete; its pieces
        // give its length. A rail's concurrent write changes no more than the sum.
        let bytes = unsafe { std::slice::from_raw_parts(base, len) };
        match far {
            true => summer.update_far(bytes),
            false => summer.update(bytes),
        }
    });
    summer.finish()
}

/// Copies bytes to `offset` of posted memory.
pub(crate) fn place(pieces: &Pieces, offset: u64, bytes: &[u8]) {
    let mut at = 0;
    pieces.for_range(offset, bytes.len(), |base, len| {
        let part = &bytes[at..at + len];
        // SAFETY: user memory posted for a receive, which the node keeps until the message is
        // complete; its pieces give its length. A rail's own memory does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), base, len) };
        at += len;
    });
}

/// Copies the first `copy` bytes of a payload into posted memory; returns the checksum of all of
/// it.
#[inline]
pub(crate) fn scatter(
    pieces: &Pieces,
    offset: u64,
    copy: usize,
    payload: &Payload<'_>,
    (algorithm, seed): (Algorithm, Seed),
) -> u64 {
    let bytes = payload.bytes;
    if let Some(base) = pieces
        .whole(offset, bytes.len())
        .filter(|_| copy == bytes.len())
    {
        // SAFETY: user memory posted for this receive, which the node keeps until the message is
        // complete; `whole` has checked that the range is in one piece.
        let sum = unsafe { copy_and_sum(algorithm, seed, base, bytes.as_ptr(), bytes.len()) };
        if pieces.whole(offset, 2 * bytes.len()).is_some() && bytes.len() >= 1024 {
            prefetch_for_write(base.wrapping_add(bytes.len()), bytes.len());
        }
        return sum;
    }
    let mut summer = Summer::new(algorithm, seed);
    let mut at = 0;
    pieces.for_range(offset, copy.min(bytes.len()), |base, len| {
        // SAFETY: as above, piece by piece; `at + len <= bytes.len()`.
        unsafe { summer.copy(base, bytes.as_ptr().add(at), len) };
        at += len;
    });
    summer.update(&bytes[at..]);
    summer.finish()
}

/// Copies the first `len` bytes of one operation's memory to `offset` in another's.
pub(crate) fn copy(from: &Pieces, to: &Pieces, offset: u64, len: usize) {
    let mut at = offset;
    from.for_range(0, len, |source, n| {
        let mut source = source.cast_const();
        to.for_range(at, n, |base, m| {
            // SAFETY: both are user memory (or the log) lent to operations that are not complete;
            // their pieces give their lengths. A user may have lent one range twice.
            unsafe { std::ptr::copy(source, base, m) };
            source = source.wrapping_add(m);
        });
        at += n as u64;
    });
}

#[cfg(test)]
mod tests {
    use super::{copy, poison};
    use crate::api::IoVec;
    use crate::memory::op_table::Pieces;

    /// Every 64 bytes and the last word change; memory around stays.
    #[test]
    fn every_cache_line_of_granted_memory_is_poisoned() {
        for len in [8, 9, 63, 64, 65, 72, 128, 1_000] {
            let mut bytes = vec![7u8; len + 2];
            poison(bytes[1..].as_mut_ptr(), len, u64::MAX);
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
    fn pieces_of_any_length_are_copied_to_their_place_only() {
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
