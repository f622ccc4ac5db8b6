//! The anti-replay window of a member's packets: which numbers have arrived (RFC 6479).

use alloc::vec::Vec;

/// Least numbers that a window remembers. Rails deliver packets in different order: a member that
/// sleeps finds up to a root's window of chunks on one rail after later ones on another.
const NUMBERS_MIN: u64 = 4_096;
/// Windows of chunks that are remembered at least: a chunk and what is sent again for it, to all
/// and to single members, count.
const CHUNK_WINDOWS: u64 = 4;

/// The numbers of one member's packets.
#[derive(Debug, Default)]
struct ReplayWindow {
    /// The number after the highest that arrived.
    next: u64,
    /// One bit for each of the last numbers, by number modulo their count.
    seen: Vec<u64>,
}

impl ReplayWindow {
    /// Notes a number. Returns `false` if it arrived before, or is older than the last `most`
    /// numbers (a multiple of 64).
    fn take(&mut self, number: u64, most: u64) -> bool {
        if self.seen.is_empty() {
            self.seen.resize((most / 64) as usize, 0);
        }
        let most = 64 * self.seen.len() as u64;
        if number >= self.next {
            let first = self.next.max((number + 1).saturating_sub(most));
            for passed in first..number {
                self.set(passed, false);
            }
            self.next = number + 1;
        } else if self.next - number > most || self.is_set(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let word = (number / 64) as usize % self.seen.len();
        (word, 1 << (number % 64))
    }

    fn is_set(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        self.seen[word] & bit != 0
    }

    fn set(&mut self, number: u64, to: bool) {
        let (word, bit) = self.place(number);
        match to {
            true => self.seen[word] |= bit,
            false => self.seen[word] &= !bit,
        }
    }
}

/// The windows of all members.
#[derive(Debug, Default)]
pub(super) struct Replays(Vec<ReplayWindow>);

impl Replays {
    /// Notes the number of a packet of `member`, one of `members`. Returns `false` if the packet
    /// arrived before or is too old. `window`: chunks that a root may have in flight.
    pub(super) fn take(&mut self, (member, members): (u16, u16), number: u64, window: u32) -> bool {
        if self.0.is_empty() {
            let members = usize::from(members);
            self.0.resize_with(members, ReplayWindow::default);
        }
        let most = (CHUNK_WINDOWS * u64::from(window)).max(NUMBERS_MIN);
        let window = self.0.get_mut(usize::from(member));
        // (A packet of no member is refused as a stranger's.)
        window.is_none_or(|window| window.take(number, most.next_multiple_of(64)))
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let bits = self.0.iter().map(|window| 8 * window.seen.capacity());
        self.0.capacity() * size_of::<ReplayWindow>() + bits.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn numbers_count_once_within_the_window() {
        let mut window = ReplayWindow::default();
        let mut takes = |number| window.take(number, 128);
        assert!(takes(5) && !takes(5) && takes(4) && takes(200));
        assert!(!takes(72) && takes(73) && !takes(73) && takes(199));
        assert!(takes(200 + 128) && !takes(200) && takes(201));
        // A jump beyond the window forgets all; bits of old numbers do not stay.
        assert!(takes(10_000) && takes(9_999) && takes(9_873) && !takes(9_872));
        assert!((9_873..10_000).filter(|&number| takes(number)).count() == 125);
    }

    #[test]
    fn any_order_of_numbers_counts_each_once() {
        let (mut window, mut model) = (ReplayWindow::default(), BTreeSet::new());
        let (mut high, mut state) = (0u64, 1u64);
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        for _ in 0..rounds {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (high + 20).saturating_sub(state >> 40 & 255);
            let old = number + 192 < high;
            let fresh = !old && model.insert(number);
            assert_eq!(window.take(number, 192), fresh, "{number} of {high}");
            high = high.max(number + 1);
        }
        assert!(high > rounds / 20);
    }
}
