//! Latency of a path for short messages: the least recent round trip. A mean includes queueing,
//! descheduled peers and, on a rarely used path, the rail's poll interval.

/// A half window ends after this many samples and this time.
const HALF_SAMPLES: u8 = 8;
const HALF_NS: u64 = 20_000_000;
/// While short messages are exchanged, the other paths are probed for their latency after this many
/// samples, but not more often than the interval below. That costs few packets, and none when idle.
const ASK_SAMPLES: u16 = 256;
const ASK_EVERY_NS: u64 = 2_000_000;
/// Paths whose latencies differ by less than one part in this many count as equal, so that noise
/// does not move messages between rails.
pub(crate) const ALIKE_SHARE: u64 = 4;

/// Bytes of the longest eager message with its heads, which are in flight when it is alone.
pub(crate) const LONE_BYTES: u64 = 70_000;

/// The least recent round trip, over a window of two halves, so that old samples are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Least round trip of this half window and of the half window before.
    least_ns: [u32; 2],
    samples: u8,
    since_ns: u64,
    /// Samples since the other paths were last probed; `asked_ns`: when that was.
    unasked: u16,
    asked_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            least_ns: [u32::MAX; 2],
            samples: 0,
            since_ns: 0,
            unasked: 0,
            asked_ns: 0,
        }
    }
}

impl Latency {
    /// Adds a sample.
    #[inline]
    pub(crate) fn take(&mut self, rtt_ns: u64, now: u64) {
        if self.samples >= HALF_SAMPLES && now.saturating_sub(self.since_ns) >= HALF_NS {
            self.least_ns = [u32::MAX, self.least_ns[0]];
            (self.samples, self.since_ns) = (0, now);
        }
        self.samples = self.samples.saturating_add(1);
        self.unasked = self.unasked.saturating_add(1);
        self.least_ns[0] = self.least_ns[0].min(rtt_ns.try_into().unwrap_or(u32::MAX));
    }

    /// True if the other paths are due for a probe; the interval then starts anew.
    #[inline]
    pub(crate) fn is_to_compare(&mut self, now: u64) -> bool {
        let due = self.unasked >= ASK_SAMPLES && now.saturating_sub(self.asked_ns) >= ASK_EVERY_NS;
        if due {
            (self.unasked, self.asked_ns) = (0, now);
        }
        due
    }

    /// The least recent round trip; a very high value before the first sample.
    #[inline]
    pub fn ns(&self) -> u32 {
        self.least_ns[0].min(self.least_ns[1])
    }

    /// Half the least round trip; a very high value before the first sample.
    #[inline]
    pub(crate) fn one_way_ns(&self) -> u64 {
        u64::from(self.ns()) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_round_trip_counts_and_old_ones_are_dropped() {
        let mut latency = Latency::default();
        assert_eq!(latency.ns(), u32::MAX);
        let mut now = 0;
        for rtt_ns in [900_000, 20_000, 70_000, u64::MAX] {
            latency.take(rtt_ns, now);
        }
        assert_eq!(latency.ns(), 20_000);
        // A rarely probed path keeps its old value until it has enough new samples.
        now += 3 * HALF_NS;
        latency.take(30_000, now);
        assert_eq!(latency.ns(), 20_000);
        for _ in 0..3 * HALF_SAMPLES {
            now += HALF_NS;
            latency.take(50_000, now);
        }
        assert_eq!(latency.ns(), 50_000);
        latency.take(10_000, now);
        assert_eq!(latency.ns(), 10_000);
    }

    #[test]
    fn other_paths_are_probed_rarely() {
        let mut latency = Latency::default();
        let samples = 10 * u64::from(ASK_SAMPLES);
        let asked = (0..samples).filter(|sample| {
            let now = sample * ASK_EVERY_NS;
            latency.take(10_000, now);
            latency.is_to_compare(now)
        });
        assert_eq!(asked.count(), 10);
    }
}
