//! How far apart a member's chunks leave: congestion control by time between chunks.
//!
//! Chunks leave no faster than the rail carries them. Losses by chance, a few of a hundred, change
//! nothing; where a member loses half of what is sent, its queue or one on the way to it has
//! overflown, and chunks are put further apart until that ends (multiplicatively, as TCP halves its
//! window), then slowly closer again. The slowest receiver decides, as with the window.

/// Chunks that may leave at once after a pause: timers are not exact.
const BURST: u64 = 4;
/// Chunks that leave without such a loss before they move closer.
const CLEAN: u32 = 32;
/// Chunks leave at most so many times as far apart as the rail would carry them.
const SLOWEST: u64 = 64;
/// Where the rail's rate is not known, chunks leave first one in this part of a round trip.
const FIRST_PART: u64 = 32;

/// The pace of one member.
#[derive(Debug)]
pub(super) struct Pace {
    /// As fast as it gets.
    floor_ns: u64,
    gap_ns: u64,
    next_at: u64,
    /// Losses before this time were answered already.
    deaf_until: u64,
    clean: u32,
}

impl Pace {
    /// Chunks of `chunk_ns` each, or at once where that is 0.
    pub fn new(chunk_ns: u64) -> Pace {
        Pace {
            floor_ns: chunk_ns,
            gap_ns: chunk_ns,
            next_at: 0,
            deaf_until: 0,
            clean: 0,
        }
    }

    /// Says if a chunk may leave.
    pub fn may_send(&self, now: u64) -> bool {
        now >= self.next_at
    }

    /// When the next chunk may leave.
    pub fn next_at(&self) -> u64 {
        self.next_at
    }

    /// A chunk left, of so many bytes of a full one's.
    pub fn sent(&mut self, now: u64, len: u32, chunk: u32) {
        if self.gap_ns == 0 {
            return;
        }
        let gap = self.gap_ns.saturating_mul(len as u64) / chunk.max(1) as u64;
        let burst = BURST * self.gap_ns;
        // The time that was saved is spent now, so much of it.
        self.next_at = self.next_at.max(now.saturating_sub(burst)) + gap;
        self.clean += 1;
        if self.clean >= CLEAN {
            self.clean = 0;
            self.gap_ns = (self.gap_ns - self.gap_ns / 8).max(self.floor_ns);
            if self.floor_ns == 0 && self.gap_ns < 8 {
                self.gap_ns = 0;
            }
        }
    }

    /// Some member lost much of what was sent; whether that is news.
    pub fn slow(&mut self, now: u64, trip_ns: u64) -> bool {
        if now < self.deaf_until {
            return false;
        }
        self.deaf_until = now + 2 * trip_ns;
        self.clean = 0;
        let first = (trip_ns / FIRST_PART).max(1);
        let most = (self.floor_ns * SLOWEST).max(trip_ns);
        self.gap_ns = (self.gap_ns * 2).max(first).min(most);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves as many chunks as it may until `until`; how many.
    fn run(pace: &mut Pace, now: &mut u64, until: u64) -> u64 {
        let mut count = 0;
        while *now < until {
            if pace.may_send(*now) {
                pace.sent(*now, 100, 100);
                count += 1;
                // Without a pace time goes on by itself.
                *now += u64::from(pace.gap_ns == 0) * 1_000;
            } else {
                *now = pace.next_at();
            }
        }
        count
    }

    #[test]
    fn chunks_leave_as_the_rail_carries_them() {
        let (mut pace, mut now) = (Pace::new(1_000), 0);
        let count = run(&mut pace, &mut now, 1_000_000);
        assert!((1_000..=1_000 + BURST + 1).contains(&count), "{count}");
        // A pause is not made up for by more than a burst.
        let count = run(&mut pace, &mut (now + 1_000_000), now + 1_001_000);
        assert!(count <= BURST + 2, "{count}");
    }

    #[test]
    fn a_heavy_loss_slows_once_per_round_trip_and_is_forgotten() {
        let (mut pace, mut now) = (Pace::new(1_000), 0);
        assert!(pace.slow(now, 50_000));
        assert!(!pace.slow(now + 99_999, 50_000));
        let slowed = run(&mut pace, &mut now, 20_000);
        assert!(slowed <= 15, "{slowed}");
        run(&mut pace, &mut now, 10_000_000);
        let from = now;
        let again = run(&mut pace, &mut now, from + 1_000_000);
        assert!(again >= 999, "{again}");
    }

    #[test]
    fn losses_of_half_for_ever_leave_some_pace() {
        let mut pace = Pace::new(1_000);
        for n in 0..1_000 {
            pace.slow(n * 200_000, 50_000);
        }
        assert!(pace.gap_ns <= 64_000);
        let mut pace = Pace::new(0);
        assert!(pace.may_send(0) && pace.slow(0, 50_000) && pace.gap_ns > 0);
        let mut now = 0;
        run(&mut pace, &mut now, 1_000_000_000);
        assert_eq!(pace.gap_ns, 0);
    }
}
