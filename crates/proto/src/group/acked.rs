//! How far the members of a part are.

use alloc::vec::Vec;

/// Members by number, each with the chunk that it wants next.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// Sorted by member.
    members: Vec<(u16, u64)>,
    /// How far the slowest is, and how many are no further: looked up for each acknowledgement,
    /// so that a thousand of them are not compared each time.
    slowest: u64,
    slow: usize,
}

impl Acked {
    /// These, none of which has anything.
    pub fn new(members: impl Iterator<Item = u16>) -> Acked {
        let mut acked = Acked {
            members: members.map(|member| (member, 0)).collect(),
            ..Acked::default()
        };
        acked.members.sort_unstable();
        acked.look();
        acked
    }

    fn look(&mut self) {
        let slowest = self.members.iter().map(|&(_, next)| next).min();
        self.slowest = slowest.unwrap_or(u64::MAX);
        let slow = self.members.iter().filter(|m| m.1 == self.slowest);
        self.slow = slow.count();
    }

    /// How far the slowest is; `None`: there is nobody.
    pub fn slowest(&self) -> Option<u64> {
        (!self.members.is_empty()).then_some(self.slowest)
    }

    /// How far the fastest is.
    pub fn fastest(&self) -> Option<u64> {
        self.members.iter().map(|&(_, next)| next).max()
    }

    /// Says if there is nobody.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All of them.
    pub fn members(&self) -> impl Iterator<Item = u16> + '_ {
        self.members.iter().map(|&(member, _)| member)
    }

    /// Those that want something below `next`.
    pub fn behind(&self, next: u64) -> impl Iterator<Item = u16> + '_ {
        let behind = self.members.iter().filter(move |m| m.1 < next);
        behind.map(|&(member, _)| member)
    }

    fn find(&self, member: u16) -> Option<usize> {
        self.members.binary_search_by_key(&member, |m| m.0).ok()
    }

    /// A member has all below `next`: whether that is news. `None`: it is none of these.
    pub fn advance(&mut self, member: u16, next: u64) -> Option<bool> {
        let at = self.find(member)?;
        let before = self.members[at].1;
        if next > before {
            self.members[at].1 = next;
            self.slow -= (before == self.slowest) as usize;
            if self.slow == 0 {
                self.look();
            }
        }
        Some(next > before)
    }

    /// A member is not waited for any more; how far it was.
    pub fn remove(&mut self, member: u16) -> Option<u64> {
        let at = self.find(member)?;
        let (_, next) = self.members.remove(at);
        self.look();
        Some(next)
    }

    /// One more is waited for, which has all below `next`.
    pub fn add(&mut self, member: u16, next: u64) {
        if let Err(at) = self.members.binary_search_by_key(&member, |m| m.0) {
            self.members.insert(at, (member, next));
            self.look();
        }
    }

    /// Bytes of heap.
    pub fn heap_bytes(&self) -> usize {
        self.members.capacity() * core::mem::size_of::<(u16, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(
            steps in proptest::collection::vec((0u8..4, 0u16..6, 0u64..8), 1..60),
        ) {
            let mut acked = Acked::new(0..4);
            let mut naive: BTreeMap<u16, u64> = (0..4).map(|m| (m, 0)).collect();
            for (what, member, next) in steps {
                match what {
                    0 => {
                        prop_assert_eq!(acked.remove(member), naive.remove(&member));
                    }
                    1 => {
                        acked.add(member, next);
                        naive.entry(member).or_insert(next);
                    }
                    _ => {
                        let news = naive.get(&member).map(|&n| next > n);
                        naive.entry(member).and_modify(|n| *n = next.max(*n));
                        prop_assert_eq!(acked.advance(member, next), news);
                    }
                }
                prop_assert_eq!(acked.slowest(), naive.values().copied().min());
                prop_assert_eq!(acked.fastest(), naive.values().copied().max());
                let behind = naive.iter().filter(|(_, &n)| n < 4).map(|(&m, _)| m);
                prop_assert!(acked.behind(4).eq(behind));
            }
        }
    }
}
