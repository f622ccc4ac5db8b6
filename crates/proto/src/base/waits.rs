//! Waits of messages: the clock of one, and a histogram of many.

/// Number of classes of a histogram.
pub const WAIT_CLASSES: usize = 24;
/// The first class has waits of up to two to this power in nanoseconds (4 us), each further one
/// twice as long ones. The last class has no bound; the one before it ends at 17 s.
const FIRST_BITS: usize = 12;

/// A histogram of waits: their number by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits(pub [u64; WAIT_CLASSES]);

impl Waits {
    /// Counts a wait.
    #[inline]
    pub fn count(&mut self, wait_ns: u64) {
        let above = wait_ns.saturating_sub(1) >> FIRST_BITS;
        let class = (u64::BITS - above.leading_zeros()) as usize;
        self.0[class.min(WAIT_CLASSES - 1)] += 1;
    }

    /// Longest wait of a class in nanoseconds; `None`: the last class, which has no bound.
    pub fn bound_ns(class: usize) -> Option<u64> {
        (class + 1 < WAIT_CLASSES).then(|| 1 << (FIRST_BITS + class))
    }

    /// Adds the waits of another histogram.
    pub fn merge(&mut self, other: &Waits) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.wrapping_add(more);
        }
    }
}

/// The clock of a message's wait. It stands still while a request waits for a receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitClock {
    /// Begin of the wait, moved on by pauses; in a pause, the wait so far. 0: not begun.
    ns: u64,
    paused: bool,
}

impl WaitClock {
    /// Begins the wait. Returns false if it has begun before.
    #[inline]
    pub(crate) fn begin(&mut self, now: u64) -> bool {
        let new = self.ns == 0 && !self.paused;
        if new {
            self.ns = now;
        }
        new
    }

    /// Stops (`on`) or continues the clock, unless it does so already.
    pub(crate) fn pause(&mut self, now: u64, on: bool) {
        if self.paused != on {
            self.ns = now.saturating_sub(self.ns);
            self.paused = on;
        }
    }

    /// The wait so far in nanoseconds.
    #[inline]
    pub(crate) fn wait_ns(&self, now: u64) -> u64 {
        match self.paused {
            true => self.ns,
            false => now.saturating_sub(self.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_class_that_holds_it() {
        for (wait_ns, class) in [
            (0, 0),
            (4_096, 0),
            (4_097, 1),
            (8_192, 1),
            (8_193, 2),
            (1 << 34, 22),
            ((1 << 34) + 1, 23),
            (u64::MAX, 23),
        ] {
            let mut waits = Waits::default();
            waits.count(wait_ns);
            assert_eq!(waits.0[class], 1, "{wait_ns}");
            assert!(Waits::bound_ns(class).is_none_or(|bound| wait_ns <= bound));
            waits.merge(&waits.clone());
            assert_eq!(waits.0.iter().sum::<u64>(), 2);
        }
        assert_eq!(Waits::bound_ns(0), Some(4_096));
        assert_eq!(Waits::bound_ns(WAIT_CLASSES - 1), None);
    }

    #[test]
    fn a_clock_leaves_out_its_pauses() {
        let mut clock = WaitClock::default();
        assert!(clock.begin(100) && !clock.begin(200));
        assert_eq!(clock.wait_ns(150), 50);
        clock.pause(150, true);
        clock.pause(160, true);
        assert_eq!(clock.wait_ns(1_000), 50);
        clock.pause(1_000, false);
        clock.pause(1_001, false);
        assert_eq!(clock.wait_ns(1_030), 80);
    }
}
