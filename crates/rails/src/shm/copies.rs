//! The choice, for each write, between two copies through the ring and one copy by the kernel.
//!
//! Two copies through a ring that stays in the caches are faster than one by the kernel if both
//! ends run and each makes one copy. If the ends share a processor the opposite holds: each ring's
//! length costs a context switch. The decision depends on whether the other end reads while this
//! end writes (docs/design/shm.md).

use super::ring::Memory;
use crate::sys::Ring;

/// Bytes that may be copied into the ring after a timely advance of the reader: the ring's length.
const MOST: u64 = Ring::LEN;
/// Bytes that may be copied after a late advance: two writes of 64 KiB (in whole blocks), since the
/// reader cannot have read the first before it was written.
const LEAST: u64 = Ring::LEN / 2 + 2048;

/// State of the choice.
#[derive(Debug)]
pub(super) struct Copies {
    /// The reader's position at the last check.
    consumed: u64,
    /// Bytes of writes since the reader's last advance.
    written: u64,
    /// Bytes of writes that may still be copied before the reader advances.
    allowance: u64,
}

impl Copies {
    pub(super) fn new() -> Copies {
        Copies {
            consumed: 0,
            written: 0,
            allowance: LEAST,
        }
    }

    /// Decides whether a write of `len` bytes is copied into the ring. `consumed`: the bytes that
    /// the reader has consumed so far.
    pub(super) fn one_more(&mut self, consumed: u64, len: u64) -> bool {
        if consumed != self.consumed {
            self.allowance = match self.written {
                0 => self.allowance, // it has read packets only
                written if written <= self.allowance => MOST,
                _ => LEAST,
            };
            (self.consumed, self.written) = (consumed, 0);
        }
        self.written = self.written.saturating_add(len);
        self.written <= self.allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: u64 = 64 << 10;

    /// Number of copied writes out of `n`, none of which is read before the end.
    fn copied(copies: &mut Copies, consumed: u64, n: u64) -> usize {
        let mut one = |_: &u64| copies.one_more(consumed, WRITE);
        (0..n).filter(|at| one(at)).count()
    }

    #[test]
    fn a_concurrent_reader_gets_copies() {
        let mut copies = Copies::new();
        for consumed in 1..100 {
            assert_eq!(copied(&mut copies, consumed * WRITE, 1), 1);
        }
        // The reader falls behind for a while and resumes.
        assert_eq!(copied(&mut copies, 100 * WRITE, 6), 4, "a ring's length");
        assert_eq!(copied(&mut copies, 101 * WRITE, 1), 1);
        assert_eq!(copied(&mut copies, 102 * WRITE, 4), 4);
    }

    #[test]
    fn a_late_reader_gets_few_copies() {
        let mut copies = Copies::new();
        for turn in 1..100 {
            assert_eq!(copied(&mut copies, turn * 64 * WRITE, 64), 2, "turn {turn}");
        }
    }

    #[test]
    fn no_length_overflows() {
        let mut copies = Copies::new();
        assert!(!copies.one_more(0, u64::MAX) && !copies.one_more(0, u64::MAX));
    }
}
