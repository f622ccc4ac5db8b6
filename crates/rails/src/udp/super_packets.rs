//! Detects whether super-packets arrive whole. The bytes of a direct write have no heads of their
//! own: if the kernel delivers a write in parts, the write is lost. So memory is granted for direct
//! writes only while super-packets arrive whole.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A GRO batch of at least this many bytes counts as whole: most of a super-packet.
const WHOLE_MIN: usize = 48 << 10;
/// Shorter datagrams are ignored.
const BULK_MIN: usize = 1 << 10;
/// Received bytes per decision. Only half of them must have arrived whole, since the ends of
/// messages and grants are shorter.
const LOOK: usize = 1 << 20;
/// Number of decisions, after a write that arrived in parts, before super-packets may count as
/// whole again.
const DISTRUST: u32 = 64;

/// Statistics of joined datagrams.
#[derive(Default)]
pub(super) struct Joins {
    whole: usize,
    all: usize,
    distrust: u32,
}

impl Joins {
    /// Counts a received datagram or GRO batch of this many bytes.
    #[inline]
    pub(super) fn came(&mut self, len: usize, whole: &AtomicBool) {
        if len < BULK_MIN {
            return;
        }
        self.all += len;
        self.whole += if len >= WHOLE_MIN { len } else { 0 };
        if self.all >= LOOK {
            self.distrust = self.distrust.saturating_sub(1);
            let trust = self.distrust == 0 && 2 * self.whole >= self.all;
            whole.store(trust, Relaxed);
            (self.whole, self.all) = (0, 0);
        }
    }

    /// Records a direct write that arrived in parts.
    #[cold]
    pub(super) fn torn(&mut self, whole: &AtomicBool) {
        self.distrust = DISTRUST;
        whole.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_granted_where_super_packets_come_whole() {
        let (whole, mut joins) = (AtomicBool::new(false), Joins::default());
        let mut take = |len: usize, times: usize| {
            (0..times).for_each(|_| joins.came(len, &whole));
            whole.load(Relaxed)
        };
        assert!(!take(60_000, 1), "nothing is known yet");
        assert!(take(60_000, 20));
        assert!(!take(1_472, 1_000), "one by one");
        assert!(!take(20_000, 100), "in parts");
        assert!(take(60_000, 40));
        assert!(take(100, 100_000), "short ones say nothing");
        joins.torn(&whole);
        assert!(!whole.load(Relaxed));
        (0..20).for_each(|_| joins.came(60_000, &whole));
        assert!(!whole.load(Relaxed), "too soon");
        (0..20 * DISTRUST).for_each(|_| joins.came(60_000, &whole));
        assert!(whole.load(Relaxed));
    }
}
