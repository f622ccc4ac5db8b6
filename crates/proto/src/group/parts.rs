//! The members that collect acknowledgements, and for whom.

/// A group divided into parts of equal size, one per collector. Seen from a root, members stand in
/// a ring that begins with it; each part's first member collects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    members: u16,
    /// Members of a part; the last may have fewer.
    size: u16,
}

impl Parts {
    /// Parts of a group of `members`, for one root and up to `co_roots` more collectors.
    pub fn new(members: u16, co_roots: u16) -> Parts {
        let collectors = (co_roots.saturating_add(1)).min(members.max(1));
        Parts {
            members,
            size: members.div_ceil(collectors).max(1),
        }
    }

    /// Place of a member in the ring of `root`.
    fn place(&self, root: u16, member: u16) -> u16 {
        let ring = self.members as u32;
        ((member as u32 + ring - root as u32) % ring) as u16
    }

    fn at(&self, root: u16, place: u16) -> u16 {
        ((root as u32 + place as u32) % self.members as u32) as u16
    }

    /// Whom a member acknowledges to. Co-roots acknowledge to the root, which to itself.
    pub fn collector(&self, root: u16, member: u16) -> u16 {
        let place = self.place(root, member);
        match place % self.size {
            0 => root,
            within => self.at(root, place - within),
        }
    }

    /// Members that acknowledge to `collector`.
    pub fn of(&self, root: u16, collector: u16) -> impl Iterator<Item = u16> + '_ {
        let others = (0..self.members).filter(move |&m| m != collector && m != root);
        others.filter(move |&m| self.collector(root, m) == collector)
    }

    /// Whether this member collects for the root, or is it.
    pub fn collects(&self, root: u16, member: u16) -> bool {
        self.of(root, member).next().is_some()
    }
}
