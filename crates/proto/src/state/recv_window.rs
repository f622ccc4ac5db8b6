//! Receive window of a path: rejects duplicates and makes acks.
//!
//! Packet numbers are never reused, so a lost packet leaves a hole for ever, and the window slides
//! past it. Numbers below the window count as duplicates (their frames were retransmitted long ago
//! under another number).

use crate::base::blocks::for_words;
use alloc::vec::Vec;
use marline_wire::{Ack, ACK_MASKS_MAX};

/// Words of the window: 4,096 packets, four times as many as one ACK can name.
const WORDS: usize = 64;
const SPAN: u64 = 64 * WORDS as u64;
/// Most that a number may be ahead of the numbers that arrived, directly after an arrival: twice
/// the packets that a fast path's window has in flight.
const LEAD_MAX: u64 = 2 * SPAN;
/// Growth of that bound for each millisecond without a packet: a sender that hears nothing sends
/// far less than that.
const LEAD_PER_MS: u64 = 8;

/// The window of one path.
#[derive(Clone, Debug, Default)]
pub struct RecvWindow {
    /// One above the highest number that arrived; 0: none arrived.
    end: u64,
    /// Up to `WORDS` words, allocated on demand, so that a rarely used path stays small.
    bits: Vec<u64>,
    /// Lowest number that arrived since the last ack was made; `newest_ns`: when the newest packet
    /// arrived.
    fresh_from: Option<u64>,
    newest_ns: u64,
    /// When the last packet arrived; 0: none arrived.
    heard_ns: u64,
    fresh: u32,
    /// All fresh packets were acknowledged before.
    renewed: bool,
    /// Packets arrived whose data the sender does not retain: acks name as many packets as they
    /// can.
    pub native: bool,
}

/// The first packet of the next ack, and the window's state after it.
struct Next {
    base: u64,
    fresh_from: Option<u64>,
    fresh: u32,
}

impl RecvWindow {
    /// Bytes of heap in use.
    pub fn heap_bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }

    fn bit(&self, number: u64) -> bool {
        self.word(number / 64) >> (number % 64) & 1 == 1
    }

    #[inline]
    fn word(&self, word: u64) -> u64 {
        self.bits.get(word as usize % WORDS).copied().unwrap_or(0)
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        let len = (at + 1).next_power_of_two();
        self.bits.reserve_exact(len - self.bits.len());
        self.bits.resize(len, 0);
    }

    /// True if the packet arrived before, or is too old to tell.
    #[inline]
    pub fn is_duplicate(&self, number: u64) -> bool {
        if number >= self.end {
            return false;
        }
        self.end - number > SPAN - 64 || self.bit(number)
    }

    /// True if the sender can have reached this number since the last packet, or since `opened_ns`
    /// if there was none. A forged number far ahead would turn all later packets into duplicates.
    #[inline]
    pub fn is_in_reach(&self, number: u64, now_ns: u64, opened_ns: u64) -> bool {
        let lead = number.saturating_sub(self.end);
        let silent_ms = || now_ns.saturating_sub(self.heard_ns.max(opened_ns)) / 1_000_000;
        lead <= LEAD_MAX || lead <= LEAD_MAX + LEAD_PER_MS * silent_ms()
    }

    /// Records an arrived packet. `eliciting`: the packet requests an ack.
    pub fn record(&mut self, number: u64, eliciting: bool, now_ns: u64) {
        self.heard_ns = now_ns;
        self.slide(number);
        let at = (number / 64) as usize % WORDS;
        if at >= self.bits.len() {
            self.grow(at);
        }
        self.bits[at] |= 1 << (number % 64);
        if eliciting {
            self.renewed = false;
            self.fresh_from = Some(self.fresh_from.map_or(number, |f| f.min(number)));
            self.newest_ns = now_ns;
            self.fresh += 1;
        }
    }

    /// One above the highest number that arrived.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Records the next `count` packets after the highest that arrived. `eliciting`: all of them
    /// request an ack.
    pub fn record_run(&mut self, count: u32, eliciting: bool, now_ns: u64) {
        let from = self.end;
        if count == 0 {
            return;
        }
        self.heard_ns = now_ns;
        self.slide(from + count as u64 - 1);
        for_words(from, count as u64, |word, mask| {
            let at = word as usize % WORDS;
            if at >= self.bits.len() {
                self.grow(at);
            }
            self.bits[at] |= mask;
        });
        if !eliciting {
            return;
        }
        self.renewed = false;
        self.fresh_from = self.fresh_from.or(Some(from));
        self.newest_ns = now_ns;
        self.fresh += count;
    }

    fn slide(&mut self, number: u64) {
        if number < self.end {
            return;
        }
        // Words that enter the window start empty.
        let (old, new) = (self.end.div_ceil(64), number / 64 + 1);
        if new - old.min(new) >= WORDS as u64 {
            self.bits.fill(0);
        } else {
            for w in old..new {
                if let Some(bits) = self.bits.get_mut(w as usize % WORDS) {
                    *bits = 0;
                }
            }
        }
        self.end = number + 1;
    }

    /// Packets that wait for an ack.
    #[inline]
    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    /// True if some fresh packet was not acknowledged before.
    pub fn has_news(&self) -> bool {
        self.fresh > 0 && !self.renewed
    }

    /// Makes the next ack name as many packets as it can, even if no new packet arrived.
    pub fn renew(&mut self) {
        if self.end == 0 {
            return;
        }
        let from = self.end.saturating_sub(64 * ACK_MASKS_MAX as u64);
        self.fresh_from = Some(self.fresh_from.map_or(from, |fresh| fresh.min(from)));
        self.renewed |= self.fresh == 0;
        self.fresh = self.fresh.max(1);
    }

    /// The next ack without its masks, and the number of masks; `None` when no packet is fresh.
    /// Covers at least the last 64 packets again, in case the ack before is lost. If the fresh
    /// packets need several acks, call until the result is `None`.
    #[inline]
    pub fn take_head(&mut self, path: u16, now_ns: u64) -> Option<(Ack<()>, u8)> {
        let next = self.next()?;
        (self.fresh_from, self.fresh) = (next.fresh_from, next.fresh);
        Some(self.head(path, now_ns, next.base))
    }

    /// Bytes of the next ack in a packet.
    pub fn ack_len(&self) -> usize {
        const FIXED: usize = 16;
        let masks = self.next().map(|next| self.head(0, 0, next.base).1);
        masks.map_or(0, |masks| FIXED + 8 * masks as usize)
    }

    #[inline]
    fn head(&self, path: u16, now_ns: u64, base: u64) -> (Ack<()>, u8) {
        let count = (self.end - base).div_ceil(64).min(ACK_MASKS_MAX as u64) as u8;
        let delay_us = now_ns.saturating_sub(self.newest_ns) / 1_000;
        let ack = Ack {
            path,
            delay_us: delay_us.min(u16::MAX as u64) as u16,
            base,
            masks: (),
        };
        (ack, count)
    }

    /// The next ack with its masks.
    #[cfg(test)]
    fn take_ack(&mut self, path: u16, now_ns: u64) -> Option<Ack> {
        let (ack, count) = self.take_head(path, now_ns)?;
        let mut masks = marline_wire::AckMasks {
            count,
            bits: [0; ACK_MASKS_MAX],
        };
        for (m, mask) in masks.bits[..count as usize].iter_mut().enumerate() {
            *mask = self.mask(&ack, m);
        }
        let (delay_us, base) = (ack.delay_us, ack.base);
        Some(Ack {
            path,
            delay_us,
            base,
            masks,
        })
    }

    /// Mask `m` of an ack just made.
    #[inline]
    pub fn mask(&self, ack: &Ack<()>, m: usize) -> u64 {
        self.mask_at(ack.base + 64 * m as u64)
    }

    /// The first number of the next ack, and the fresh packets after it.
    #[inline]
    fn next(&self) -> Option<Next> {
        let fresh_from = self.fresh_from?;
        // A stream repeats many packets: its acks are few, and may overtake each other on two
        // rails. A lone message repeats one mask.
        let again = if self.fresh >= 16 { 512 } else { 64 };
        let span_max = 64 * ACK_MASKS_MAX as u64;
        let fresh_from = match self.native {
            true => self.end.saturating_sub(64 * ACK_MASKS_MAX as u64),
            false => fresh_from,
        };
        let from = fresh_from.max(self.end.saturating_sub(SPAN - 64));
        if self.end - from > span_max {
            return Some(Next {
                base: from,
                fresh_from: Some(from + span_max),
                fresh: self.fresh.saturating_sub(span_max as u32).max(1),
            });
        }
        let base = from
            .min(self.end.saturating_sub(again))
            .max(self.end.saturating_sub(span_max));
        Some(Next {
            base,
            fresh_from: None,
            fresh: 0,
        })
    }

    /// The 64 bits from `number` on (unaligned), cut at the window's end.
    fn mask_at(&self, number: u64) -> u64 {
        let (word, shift) = (number / 64, number % 64);
        let low = self.word(word) >> shift;
        let high = if shift == 0 || (word + 1) * 64 >= self.end {
            0
        } else {
            self.word(word + 1) << (64 - shift)
        };
        low | high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn duplicates_and_acks_agree_with_a_btree_set(
            steps in proptest::collection::vec(
                (0u64..40, prop::bool::ANY), 1..if cfg!(miri) { 20 } else { 400 }),
            start in 0u64..1000)
        {
            let (mut window, mut seen, mut top) = (RecvWindow::default(), BTreeSet::new(), start);
            for (jump, ack) in steps {
                let number = if jump < 8 { top.saturating_sub(jump * 7) } else { top + jump - 8 };
                top = top.max(number);
                prop_assert_eq!(window.is_duplicate(number), seen.contains(&number));
                if seen.insert(number) {
                    window.record(number, true, 5);
                }
                if ack {
                    if let Some(a) = window.take_ack(3, 5) {
                        for (m, bits) in a.masks.bits.iter().enumerate() {
                            for i in 0..64 {
                                let n = a.base + 64 * m as u64 + i;
                                let covered = (m as u8) < a.masks.count;
                                prop_assert_eq!(bits >> i & 1 == 1, covered && seen.contains(&n));
                            }
                        }
                        prop_assert!(a.base + 64 * a.masks.count as u64 > *seen.last().unwrap());
                    }
                }
            }
        }
    }

    proptest! {
        /// Jumps of any length, packets without a request for an ack, late acks: no packet is taken
        /// twice, none of the last thousand is refused, and each packet that requests an ack gets
        /// one.
        #[test]
        fn far_jumps_agree_with_a_btree_set(
            steps in proptest::collection::vec(
                (0u32..4, 0u64..6_000, any::<bool>(), 0u32..8),
                1..if cfg!(miri) { 10 } else { 150 }))
        {
            let (mut window, mut seen) = (RecvWindow::default(), BTreeSet::new());
            let (mut top, mut owed) = (0u64, BTreeSet::new());
            for (kind, jump, eliciting, ack) in steps {
                let number = match kind {
                    0 => top + jump,
                    1 => top + jump % 70,
                    _ => top.saturating_sub(jump % 1_200),
                };
                if window.is_duplicate(number) {
                    let old = top.saturating_sub(number) > SPAN - 128;
                    prop_assert!(old || seen.contains(&number), "{} was refused", number);
                } else {
                    prop_assert!(seen.insert(number), "{} was taken twice", number);
                    window.record(number, eliciting, 0);
                    if eliciting {
                        owed.insert(number);
                    }
                }
                top = top.max(number);
                prop_assert_eq!(window.fresh() as usize, owed.len());
                if ack > 0 {
                    continue;
                }
                // Each packet that requests an ack gets it, in one of the acks, unless it is below
                // the window.
                let mut acked = BTreeSet::new();
                while let Some(a) = window.take_ack(0, 0) {
                    let span = 64 * a.masks.count as u64;
                    let bit = |n: u64| a.masks.bits[(n / 64) as usize] >> (n % 64) & 1 == 1;
                    acked.extend((0..span).filter(|&n| bit(n)).map(|n| a.base + n));
                }
                prop_assert_eq!(acked.is_empty(), owed.is_empty());
                prop_assert!(acked.is_subset(&seen), "acks what never came");
                let mut due = owed.iter().filter(|&&n| n + SPAN - 64 > top);
                prop_assert!(due.all(|n| acked.contains(n)), "forgets to ack");
                owed.clear();
            }
        }
    }

    proptest! {
        /// A run of packets is recorded like the single packets.
        #[test]
        fn a_run_equals_its_packets(
            steps in proptest::collection::vec((0u64..200, 0u32..150, 0u32..4), 1..60))
        {
            let (mut run, mut single) = (RecvWindow::default(), RecvWindow::default());
            for (jump, count, ack) in steps {
                for window in [&mut run, &mut single] {
                    let number = window.end() + jump;
                    window.record(number, jump % 5 != 0, 7);
                }
                run.record_run(count, true, 9);
                for _ in 0..count {
                    single.record(single.end(), true, 9);
                }
                prop_assert_eq!(run.fresh(), single.fresh());
                if ack == 0 {
                    prop_assert_eq!(run.take_ack(1, 9), single.take_ack(1, 9));
                }
            }
            prop_assert_eq!((run.end, &run.bits), (single.end, &single.bits));
        }
    }

    #[test]
    fn a_jump_is_out_of_reach_and_a_far_one_clears_the_window() {
        let (mut w, ms) = (RecvWindow::default(), 1_000_000);
        w.record(0, true, 5 * ms);
        let lead = |number, now_ms| w.is_in_reach(number, now_ms * ms, ms);
        assert!(lead(1 + LEAD_MAX, 5) && !lead(2 + LEAD_MAX, 5));
        assert!(!lead(1 << 32, 1_000) && lead(1 + LEAD_MAX + 800, 105));
        let new = RecvWindow::default();
        assert!(
            !new.is_in_reach(LEAD_MAX + 1, ms, ms),
            "since the conversation began"
        );
        w.record(100_000, true, 0);
        assert!(w.is_duplicate(0) && w.is_duplicate(50) && !w.is_duplicate(99_999));
    }
}
