//! Order in which the groups of a process send when a rail has little room.

/// Round robin: the group behind the one that took the last room sends first. In a fixed order, the
/// chunks of one group would take all room again and again, and the acknowledgements and NACKs of
/// the next group would wait until those chunks have left.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    first: usize,
}

impl RoundRobin {
    /// The numbers of `count` groups, in the order in which they send.
    pub fn order(&self, count: usize) -> impl Iterator<Item = usize> {
        let first = self.first % count.max(1);
        (first..count).chain(0..first)
    }

    /// Records that a group took the last room.
    pub fn took_last_room(&mut self, group: usize) {
        self.first = group + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_took_the_last_room_sends_last() {
        let mut turns = RoundRobin::default();
        assert!(turns.order(3).eq([0, 1, 2]));
        turns.took_last_room(0);
        assert!(turns.order(3).eq([1, 2, 0]));
        turns.took_last_room(2);
        assert!(turns.order(3).eq([0, 1, 2]));
        // Groups were closed since.
        turns.took_last_room(1);
        assert!(turns.order(1).eq([0]) && turns.order(0).next().is_none());
    }
}
