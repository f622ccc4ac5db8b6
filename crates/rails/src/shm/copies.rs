//! The choice, for each write, between two copies through the ring and one that the kernel makes.
//!
//! Two copies through a ring that stays in the caches are faster than one by the kernel, if both
//! ends run and each makes one of them. Where they share a processor it is the other way round:
//! each ring's length costs a change of processes. What tells them apart is whether the other end
//! reads while this one writes (docs/design/shm.md).

use super::ring::Memory;
use crate::sys::Ring;

/// Bytes that are copied before the other end has read on, if it did so in time: as the ring holds.
const MOST: u64 = Ring::LEN;
/// And if it did not: two writes of 64 KiB (in whole granules), as it cannot have read the first
/// one before it was there.
const LEAST: u64 = Ring::LEN / 2 + 2048;

/// See above.
#[derive(Debug)]
pub(super) struct Copies {
    /// How far the other end had read when it was looked at last.
    consumed: u64,
    /// Bytes of writes since.
    written: u64,
    /// The bytes of these that are copied.
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

    /// Returns whether a write of so many bytes is to be copied into the ring, of which the other
    /// end has `consumed` so much.
    pub(super) fn one_more(&mut self, consumed: u64, len: u64) -> bool {
        if consumed != self.consumed {
            self.allowance = match self.written {
                0 => self.allowance, // it has read packets
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

    /// How many of `n` writes are copied, after each of which the other end has read all.
    fn copied(copies: &mut Copies, consumed: u64, n: u64) -> usize {
        let mut one = |_: &u64| copies.one_more(consumed, WRITE);
        (0..n).filter(|at| one(at)).count()
    }

    #[test]
    fn who_reads_meanwhile_is_copied_for() {
        let mut copies = Copies::new();
        for consumed in 1..100 {
            assert_eq!(copied(&mut copies, consumed * WRITE, 1), 1);
        }
        // It falls behind for a while, and goes on.
        assert_eq!(copied(&mut copies, 100 * WRITE, 6), 4, "a ring's length");
        assert_eq!(copied(&mut copies, 101 * WRITE, 1), 1);
        assert_eq!(copied(&mut copies, 102 * WRITE, 4), 4);
    }

    #[test]
    fn who_reads_afterwards_finds_little_copied() {
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
