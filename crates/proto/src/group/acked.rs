//! Acknowledged progress of the members of a part.

use alloc::vec::Vec;

/// Members with the number of the next chunk that each needs.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// Sorted by member.
    members: Vec<(u16, u64)>,
    /// Progress of the slowest member, and the number of members that are only so far. Kept so that
    /// an acknowledgement need not be compared with a thousand members.
    slowest: u64,
    slow: usize,
}

impl Acked {
    /// Starts with the given members, none of which has any chunk.
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

    /// Progress of the slowest member; `None`: no members.
    pub fn slowest(&self) -> Option<u64> {
        (!self.members.is_empty()).then_some(self.slowest)
    }

    /// Progress of the fastest member.
    pub fn fastest(&self) -> Option<u64> {
        self.members.iter().map(|&(_, next)| next).max()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = u16> + '_ {
        self.members.iter().map(|&(member, _)| member)
    }

    /// Members that miss a chunk below `next`.
    pub fn behind(&self, next: u64) -> impl Iterator<Item = u16> + '_ {
        let behind = self.members.iter().filter(move |m| m.1 < next);
        behind.map(|&(member, _)| member)
    }

    fn find(&self, member: u16) -> Option<usize> {
        self.members.binary_search_by_key(&member, |m| m.0).ok()
    }

    /// Records that a member has all chunks below `next`. Returns whether that is new; `None`: the
    /// member is not one of these.
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

    /// Removes a member. Returns its progress.
    pub fn remove(&mut self, member: u16) -> Option<u64> {
        let at = self.find(member)?;
        let (_, next) = self.members.remove(at);
        self.look();
        Some(next)
    }

    /// Adds a member that has all chunks below `next`.
    pub fn add(&mut self, member: u16, next: u64) {
        if let Err(at) = self.members.binary_search_by_key(&member, |m| m.0) {
            self.members.insert(at, (member, next));
            self.look();
        }
    }

    /// Heap bytes.
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
