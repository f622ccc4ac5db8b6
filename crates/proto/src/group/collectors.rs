//! Assignment of members to the collectors of their acknowledgements.

/// A group divided into parts of equal size, one per collector. Seen from a root, members form a
/// ring that begins with the root; the first member of each part collects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    members: u16,
    /// Members of a part; the last part may have fewer.
    size: u16,
}

impl Parts {
    /// Parts of a group of `members`, with up to `co_roots` collectors besides the root.
    pub fn new(members: u16, co_roots: u16) -> Parts {
        let collectors = (co_roots.saturating_add(1)).min(members.max(1));
        Parts {
            members,
            size: members.div_ceil(collectors).max(1),
        }
    }

    /// Most members of a part.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Position of a member in the ring of `root`.
    fn place(&self, root: u16, member: u16) -> u16 {
        let ring = self.members as u32;
        ((member as u32 + ring - root as u32) % ring) as u16
    }

    fn at(&self, root: u16, place: u16) -> u16 {
        ((root as u32 + place as u32) % self.members as u32) as u16
    }

    /// The collector of a member. Co-roots acknowledge to the root, and the root is its own
    /// collector.
    pub fn collector(&self, root: u16, member: u16) -> u16 {
        let place = self.place(root, member);
        match place % self.size {
            0 => root,
            within => self.at(root, place - within),
        }
    }

    /// The co-roots of a root.
    pub fn co_roots(&self, root: u16) -> impl Iterator<Item = u16> + '_ {
        let firsts = (self.size..self.members).step_by(self.size as usize);
        firsts.map(move |place| self.at(root, place))
    }

    /// Members that acknowledge to `collector`.
    pub fn of(&self, root: u16, collector: u16) -> impl Iterator<Item = u16> + '_ {
        let first = self.place(root, collector);
        let collects = first % self.size == 0;
        let end = match collects {
            true => first.saturating_add(self.size).min(self.members),
            false => first,
        };
        let own = (first + collects as u16..end).map(move |place| self.at(root, place));
        let co_roots = self.co_roots(root);
        own.chain(co_roots.filter(move |_| collector == root))
    }

    /// Returns whether this member is the root or a collector for it.
    pub fn collects(&self, root: u16, member: u16) -> bool {
        let first = self.place(root, member);
        let followed = self.size > 1 && first + 1 < self.members;
        first % self.size == 0 && (followed || first == 0 && self.members > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Each member except the root has one collector, and the collector's list contains it.
    #[test]
    fn parts_cover_all_members_once() {
        let most = if cfg!(miri) { 5 } else { 20 };
        for members in 1u16..most {
            for co_roots in 0..most {
                let parts = Parts::new(members, co_roots);
                for root in 0..members {
                    let all = (0..members).flat_map(|c| parts.of(root, c).map(move |m| (m, c)));
                    let mut all: Vec<(u16, u16)> = all.collect();
                    all.sort_unstable();
                    let wanted = (0..members).filter(|&m| m != root);
                    let wanted: Vec<_> = wanted.map(|m| (m, parts.collector(root, m))).collect();
                    assert_eq!(all, wanted, "{members} members, {co_roots} co-roots");
                    for member in 0..members {
                        let some = parts.of(root, member).next().is_some();
                        assert_eq!(parts.collects(root, member), some);
                    }
                    let co = parts.co_roots(root).count();
                    assert!(co <= co_roots as usize);
                }
            }
        }
    }
}
