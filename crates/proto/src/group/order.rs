//! The order of a group's broadcasts, and where it is left.
//!
//! All members call broadcasts in one order, and nobody can ask the others which way the next one
//! goes: it may have begun there. So a group is left by a rule. A root that learns that multicast
//! is not carried says so in the chunks of its next broadcast, and from [`AHEAD`] broadcasts later
//! on all members do it another way. Nobody begins a broadcast before all that are [`AHEAD`]
//! earlier are over for it: so whoever decides about a broadcast knows all that could tell it to
//! leave, and all decide alike.

/// Broadcasts that a member has under way at most, counted from the oldest.
pub const AHEAD: u64 = 64;

/// Where a member is.
#[derive(Debug)]
pub(super) struct Order {
    /// Number of the broadcast that begins next.
    next: u64,
    /// All below are over here.
    below: u64,
    /// Those that are over, from `below` on, as bits.
    over: u64,
    /// Broadcasts from here on are done another way.
    leave_from: u64,
    /// A root died before its broadcast was here: what it would have said is not known, so nothing
    /// begins from this number on; and who it was.
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

    /// Number of the broadcast that begins next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Begins the next broadcast; `None`: too many are under way.
    pub fn begin(&mut self) -> Option<u64> {
        let may = self.next < self.below + AHEAD;
        may.then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// A broadcast is over here, or known as well as if it were.
    pub fn over(&mut self, broadcast: u64) {
        if let Some(at) = broadcast.checked_sub(self.below).filter(|&at| at < AHEAD) {
            self.over |= 1 << at;
            let first = self.over.trailing_ones();
            self.below += first as u64;
            self.over = self.over.checked_shr(first).unwrap_or(0);
        }
    }

    /// A broadcast said that the group is to be left; from which number on, if that is news.
    pub fn leaves(&mut self, broadcast: u64) -> Option<u64> {
        let from = broadcast + AHEAD;
        let news = from < self.leave_from;
        news.then(|| {
            self.leave_from = from;
            from
        })
    }

    /// Says if a broadcast is done another way.
    pub fn has_left(&self, broadcast: u64) -> bool {
        broadcast >= self.leave_from
    }

    /// The root of a broadcast died before it was here.
    pub fn break_off(&mut self, broadcast: u64, root: u16) {
        let limit = broadcast + AHEAD;
        if self.broken.is_none_or(|(before, _)| limit < before) {
            self.broken = Some((limit, root));
        }
    }

    /// Says if nothing is received of a broadcast.
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
    fn nothing_begins_far_ahead_of_what_is_not_over() {
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
    fn the_first_that_says_so_decides() {
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
