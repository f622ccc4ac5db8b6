//! The order of a group's broadcasts, and the broadcast from which on the group is abandoned.
//!
//! All members call broadcasts in one order. A member cannot ask the others how the next broadcast
//! is to be done, because it may have begun there. So a rule decides: a root that learns that
//! multicast is not carried announces this in the chunks of its next broadcast, and from [`AHEAD`]
//! broadcasts later on all members broadcast another way. A member begins a broadcast only after
//! all broadcasts [`AHEAD`] or more before it have ended there. So it has seen every announcement
//! that concerns the broadcast, and all members decide alike.

/// Most unfinished broadcasts of a member, counted from the oldest.
pub const AHEAD: u64 = 64;

/// A member's position in the order.
#[derive(Debug)]
pub(super) struct Order {
    /// Number of the next broadcast to begin.
    next: u64,
    /// All broadcasts below this number have ended here.
    below: u64,
    /// Bit mask of broadcasts, from `below` on, that have ended.
    over: u64,
    /// From this broadcast on, broadcasts are done another way.
    leave_from: u64,
    /// Set when a root died before its broadcast arrived here. That broadcast's announcement is
    /// unknown, so none begins from this number on. The second value is the root.
    broken: Option<(u64, u16)>,
}

impl Order {
    pub fn new() -> Order {
        Order {
            next: 0,
            below: 0,
            over: 0,
            leave_from: u64::MAX,
            broken: None,
        }
    }

    /// Number of the next broadcast to begin.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Begins the next broadcast; `None`: too many are unfinished.
    pub fn begin(&mut self) -> Option<u64> {
        let may = self.next < self.below + AHEAD;
        may.then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Records that a broadcast has ended here, or that its announcement is known.
    pub fn over(&mut self, broadcast: u64) {
        if let Some(at) = broadcast.checked_sub(self.below).filter(|&at| at < AHEAD) {
            self.over |= 1 << at;
            let first = self.over.trailing_ones();
            self.below += first as u64;
            self.over = self.over.checked_shr(first).unwrap_or(0);
        }
    }

    /// Handles a broadcast's announcement that the group is abandoned. Returns the first abandoned
    /// broadcast, if that is news.
    pub fn leaves(&mut self, broadcast: u64) -> Option<u64> {
        let from = broadcast + AHEAD;
        let news = from < self.leave_from;
        news.then(|| {
            self.leave_from = from;
            from
        })
    }

    /// Returns whether a broadcast is done another way.
    pub fn has_left(&self, broadcast: u64) -> bool {
        broadcast >= self.leave_from
    }

    /// Records that a broadcast's root died before the broadcast arrived here.
    pub fn break_off(&mut self, broadcast: u64, root: u16) {
        let limit = broadcast + AHEAD;
        if self.broken.is_none_or(|(before, _)| limit < before) {
            self.broken = Some((limit, root));
        }
    }

    /// Returns whether chunks of a broadcast are refused.
    pub fn refuses(&self, broadcast: u64) -> bool {
        self.has_left(broadcast) || self.broken(broadcast).is_some()
    }

    /// The dead root because of which a broadcast cannot begin.
    pub fn broken(&self, broadcast: u64) -> Option<u16> {
        let (limit, root) = self.broken?;
        (broadcast >= limit).then_some(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_broadcasts_are_bounded() {
        let mut order = Order::new();
        (0..AHEAD).for_each(|n| assert_eq!(order.begin(), Some(n)));
        assert_eq!(order.begin(), None);
        (1..AHEAD).for_each(|n| order.over(n));
        assert_eq!(order.begin(), None);
        order.over(0);
        assert_eq!((order.below, order.over), (AHEAD, 0));
        assert_eq!(order.begin(), Some(AHEAD));
        order.over(AHEAD);
        order.over(AHEAD);
        assert_eq!(order.below, AHEAD + 1);
    }

    #[test]
    fn the_earliest_announcement_decides() {
        let mut order = Order::new();
        assert!(!order.has_left(u64::MAX - 1));
        assert_eq!(order.leaves(10), Some(74));
        assert_eq!(order.leaves(11), None);
        assert_eq!(order.leaves(9), Some(73));
        assert!(order.has_left(73) && !order.has_left(72));
        order.break_off(20, 3);
        order.break_off(30, 4);
        assert_eq!((order.broken(83), order.broken(84)), (None, Some(3)));
    }
}
