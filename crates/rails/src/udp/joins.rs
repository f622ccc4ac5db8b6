//! Finds out whether super-packets arrive as they were sent. The bytes of a direct write have no
//! heads of their own: where the kernel hands them over in parts, the write is torn, and lost. So
//! memory is granted only where they come whole.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A GRO batch of so many bytes counts as one that came whole: most of a super-packet.
const WHOLE_MIN: usize = 48 << 10;
/// Datagrams shorter than this say nothing of batches.
const BULK_MIN: usize = 1 << 10;
/// This many bytes are looked at before judging. Half of them must have come whole: the ends of
/// messages and grants are shorter.
const LOOK: usize = 1 << 20;
/// After a torn write so many looks have to pass.
const DISTRUST: u32 = 64;

/// How what arrives is joined.
#[derive(Default)]
pub(super) struct Joins {
    whole: usize,
    all: usize,
    distrust: u32,
}

impl Joins {
    /// A datagram or GRO batch of so many bytes came.
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

    /// A direct write was torn.
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
