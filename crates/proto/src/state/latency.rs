//! The round trip of a path as a short message finds it: the least of late. A mean has in it what
//! was queued, what a peer off its processor took, and, on a path that is seldom used, how often
//! its rail is polled.

/// A half of the window is over after so many samples and so long.
const HALF_SAMPLES: u8 = 8;
const HALF_NS: u64 = 20_000_000;
/// While short messages are exchanged the other paths are asked how quick they are: after so many
/// samples, and not before so long. That is few packets, and none where nothing is sent.
const ASK_SAMPLES: u16 = 256;
const ASK_EVERY_NS: u64 = 2_000_000;
/// Paths that differ by less than one part in so many count as equal, so that noise does not make
/// messages jump between rails.
pub(crate) const ALIKE_SHARE: u64 = 4;

/// The longest eager message and its heads: what is under way of a lone one.
pub(crate) const LONE_BYTES: u64 = 70_000;

/// The least round trip of late: of a window of two halves, so that what was once is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Of this half, and of the one before.
    least_ns: [u32; 2],
    samples: u8,
    since_ns: u64,
    /// Samples since others were asked, and when that was.
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
    /// Takes a sample.
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

    /// Returns whether it is time to ask others how quick they are, and notes that they are.
    #[inline]
    pub(crate) fn is_to_compare(&mut self, now: u64) -> bool {
        let due = self.unasked >= ASK_SAMPLES && now.saturating_sub(self.asked_ns) >= ASK_EVERY_NS;
        if due {
            (self.unasked, self.asked_ns) = (0, now);
        }
        due
    }

    /// The least round trip of late; very long before there was any.
    #[inline]
    pub fn ns(&self) -> u32 {
        self.least_ns[0].min(self.least_ns[1])
    }

    /// The least time of one way; very long before there was any.
    #[inline]
    pub(crate) fn one_way_ns(&self) -> u64 {
        u64::from(self.ns()) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_late_counts_and_what_was_is_forgotten() {
        let mut latency = Latency::default();
        assert_eq!(latency.ns(), u32::MAX);
        let mut now = 0;
        for rtt_ns in [900_000, 20_000, 70_000, u64::MAX] {
            latency.take(rtt_ns, now);
        }
        assert_eq!(latency.ns(), 20_000);
        // One that is seldom asked keeps what it showed, until it has shown enough.
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
    fn others_are_asked_seldom() {
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
