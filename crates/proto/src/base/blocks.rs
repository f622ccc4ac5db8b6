//! The set of finished blocks of a transfer: a sliding bitmap no longer than the granted window.
//! Up to 64 blocks (28 KiB) need no allocation.

use alloc::collections::VecDeque;

/// Part of a range that is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    /// No block of the range is finished.
    None,
    /// Some blocks of the range are in the set.
    Some,
    /// All blocks of the range are in the set.
    All,
}

/// A growing set of block indices.
#[derive(Clone, Debug, Default)]
pub struct BlockSet {
    /// All blocks below `64 * base` are in the set.
    base: u64,
    first: u64,
    more: VecDeque<u64>,
    count: u64,
}

impl BlockSet {
    /// Number of blocks in the set.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Heap bytes of the set.
    pub fn heap_bytes(&self) -> usize {
        self.more.capacity() * 8
    }

    #[inline]
    fn word(&self, index: u64) -> u64 {
        if index < self.base {
            u64::MAX
        } else if index == self.base {
            self.first
        } else {
            self.more
                .get((index - self.base - 1) as usize)
                .copied()
                .unwrap_or(0)
        }
    }

    /// Returns how much of `start .. start + n` is in the set.
    pub fn covered(&self, start: u64, n: u64) -> Covered {
        let (mut any, mut all) = (false, true);
        for_words(start, n, |index, mask| {
            let word = self.word(index) & mask;
            any |= word != 0;
            all &= word == mask;
        });
        match (any, all) {
            (_, true) => Covered::All,
            (true, _) => Covered::Some,
            _ => Covered::None,
        }
    }

    /// Returns the number of blocks from `start` on, at most `n`, before the first that is in the
    /// set.
    pub fn free_from(&self, start: u64, n: u64) -> u64 {
        let (mut free, mut taken) = (0, 0);
        for_words(start, n, |index, mask| {
            if taken == 0 {
                taken = self.word(index) & mask;
                // The mask's bits below the lowest bit that is set.
                let below = taken.wrapping_sub(1) & !taken;
                free += (mask & below).count_ones() as u64;
            }
        });
        free
    }

    /// Returns whether the block is in the set.
    pub fn contains(&self, block: u64) -> bool {
        self.word(block / 64) >> (block % 64) & 1 == 1
    }

    /// Adds `start .. start + n`; returns how many were new.
    pub fn insert(&mut self, start: u64, n: u64) -> u64 {
        let mut fresh = 0;
        for_words(start, n, |index, mask| {
            if index < self.base {
                return;
            }
            let at = (index - self.base) as usize;
            let word = if at == 0 {
                &mut self.first
            } else {
                if self.more.len() < at {
                    self.more.resize(at, 0);
                }
                &mut self.more[at - 1]
            };
            fresh += (mask & !*word).count_ones() as u64;
            *word |= mask;
        });
        self.count += fresh;
        while self.first == u64::MAX {
            self.first = self.more.pop_front().unwrap_or(0);
            self.base += 1;
        }
        fresh
    }
}

/// Calls `f(word index, mask)` for each 64-bit word that the range touches.
#[inline]
pub(crate) fn for_words(start: u64, n: u64, mut f: impl FnMut(u64, u64)) {
    let (mut at, end) = (start, start + n);
    while at < end {
        let bit = at % 64;
        let take = (64 - bit).min(end - at);
        let mask = (u64::MAX >> (64 - take)) << bit;
        f(at / 64, mask);
        at += take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn agrees_with_a_btree_set(ops in proptest::collection::vec(
            (0u64..600, 1u64..150), 1..if cfg!(miri) { 8 } else { 60 }))
        {
            let (mut set, mut naive) = (BlockSet::default(), BTreeSet::new());
            for (start, n) in ops {
                let had = (start..start + n).filter(|g| naive.contains(g)).count() as u64;
                let expect = if had == n { Covered::All } else if had > 0 { Covered::Some }
                    else { Covered::None };
                prop_assert_eq!(set.covered(start, n), expect);
                let free = (start..start + n).take_while(|g| !naive.contains(g)).count() as u64;
                prop_assert_eq!(set.free_from(start, n), free);
                prop_assert_eq!(set.insert(start, n), n - had);
                naive.extend(start..start + n);
                prop_assert_eq!(set.count(), naive.len() as u64);
            }
            let all: Vec<bool> = (0..800).map(|g| set.contains(g)).collect();
            let want: Vec<bool> = (0..800).map(|g| naive.contains(&g)).collect();
            prop_assert_eq!(all, want);
        }
    }
}
