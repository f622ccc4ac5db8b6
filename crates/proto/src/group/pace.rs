//! Spacing of a member's chunks: congestion control by the time between chunks.
//!
//! Chunks leave no faster than the rail carries them. Random losses of a few per cent change
//! nothing. If a member loses half of all chunks, a queue overflows, its own or one on the way. The
//! spacing then grows multiplicatively (as TCP halves its window) until that ends, and shrinks
//! slowly afterwards. The slowest receiver decides, as with the window.

/// Chunks that may leave at once after a pause, since timers are inexact.
const BURST: u64 = 4;
/// Chunks without heavy loss after which the spacing shrinks.
const CLEAN: u32 = 32;
/// Largest spacing in units of the rail's chunk time.
const SLOWEST: u64 = 64;
/// If the rail's rate is unknown, the initial spacing is a round trip divided by this.
const FIRST_PART: u64 = 32;

/// The spacing of one member's chunks.
#[derive(Debug)]
pub(super) struct Pace {
    /// Smallest spacing.
    floor_ns: u64,
    gap_ns: u64,
    next_at: u64,
    /// Losses reported before this time were reacted to already.
    unread_until: u64,
    clean: u32,
}

impl Pace {
    /// `chunk_ns`: chunk time of the rail; 0: chunks are not spaced at first.
    pub fn new(chunk_ns: u64) -> Pace {
        Pace {
            floor_ns: chunk_ns,
            gap_ns: chunk_ns,
            next_at: 0,
            unread_until: 0,
            clean: 0,
        }
    }

    /// Returns whether a chunk may leave.
    pub fn may_send(&self, now: u64) -> bool {
        now >= self.next_at
    }

    /// Earliest time of the next chunk.
    pub fn next_at(&self) -> u64 {
        self.next_at
    }

    /// Records a sent chunk of `len` bytes, where a full chunk has `chunk` bytes.
    pub fn sent(&mut self, now: u64, len: u32, chunk: u32) {
        if self.gap_ns == 0 {
            return;
        }
        let gap = self.gap_ns.saturating_mul(len as u64) / chunk.max(1) as u64;
        let burst = BURST * self.gap_ns;
        // Unused time may be made up for, up to a burst.
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

    /// Handles a member's heavy loss. Returns whether the spacing changed.
    pub fn slow(&mut self, now: u64, trip_ns: u64) -> bool {
        if now < self.unread_until {
            return false;
        }
        self.unread_until = now + 2 * trip_ns;
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

    /// Sends as many chunks as allowed until the time `until`. Returns their number.
    fn run(pace: &mut Pace, now: &mut u64, until: u64) -> u64 {
        let mut count = 0;
        while *now < until {
            if pace.may_send(*now) {
                pace.sent(*now, 100, 100);
                count += 1;
                // Without spacing, advance the clock.
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
        // A pause is made up for by at most a burst.
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
    fn permanent_heavy_loss_leaves_a_bounded_spacing() {
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
