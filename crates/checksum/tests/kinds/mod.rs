//! Kinds of damage to a fragment of 1,472 bytes, the largest UDP payload on Ethernet, for testing
//! sums of lanes.

use super::random::Random;
use marline_checksum::{sum, Algorithm};

/// Bytes of the fragment.
pub const BYTES: usize = 1472;
/// Bytes of a lane's block.
pub const BLOCK: usize = 16;
/// Bytes of a group of 16 lanes.
pub const GROUP: usize = 256;

/// The tested sum, and the lane of each byte.
pub struct Subject {
    pub algorithm: Algorithm,
    pub lane: fn(usize) -> usize,
}

/// Zeros, noise, and small integers.
pub fn contents() -> [Vec<u8>; 3] {
    let mut r = Random(3);
    let noise: Vec<u8> = (0..BYTES).map(|_| r.next() as u8).collect();
    let integers = noise.iter().zip(0..);
    let integers = integers.map(|(b, i)| if i % 4 > 1 { 0 } else { *b });
    [vec![0; BYTES], integers.collect(), noise]
}

impl Subject {
    pub fn of(&self, bytes: &[u8]) -> u64 {
        sum(self.algorithm, 7, bytes)
    }

    /// The change of the sum when one byte changes.
    fn change(&self, bytes: &mut [u8], want: u64, at: usize, by: u8) -> u64 {
        bytes[at] ^= by;
        let changed = self.of(bytes) ^ want;
        bytes[at] ^= by;
        changed
    }

    /// Checks all pairs of wrong bytes in different lanes: the effect of a pair is the exclusive or
    /// of the effects of each ([`Subject::errors_in_different_lanes_add_up`]).
    pub fn no_two_wrong_bytes_of_different_lanes_cancel(&self) {
        for mut bytes in contents() {
            let want = self.of(&bytes);
            let mut changes = Vec::with_capacity(BYTES * 255);
            for at in 0..BYTES {
                changes.extend((1..=255).map(|by| self.change(&mut bytes, want, at, by)));
            }
            changes.sort_unstable();
            assert_ne!(changes[0], 0, "one wrong byte passed");
            let twice = changes.windows(2).filter(|w| w[0] == w[1]).count();
            assert_eq!(twice, 0, "pairs that pass");
        }
    }

    pub fn errors_in_different_lanes_add_up(&self) {
        let mut r = Random(11);
        for mut bytes in contents() {
            let want = self.of(&bytes);
            for _ in 0..5_000 {
                let (a, b) = (r.below(BYTES), r.below(BYTES));
                let (x, y) = (1 << r.below(8), 1 << r.below(8));
                if (self.lane)(a) == (self.lane)(b) {
                    continue;
                }
                let each = self.change(&mut bytes, want, a, x);
                let each = each ^ self.change(&mut bytes, want, b, y);
                bytes[a] ^= x;
                let both = self.change(&mut bytes, want, b, y);
                bytes[a] ^= x;
                assert_eq!(both, each, "bytes {a} and {b}");
            }
        }
    }

    /// Checks the remaining two-bit errors, both in one lane, pair by pair.
    pub fn no_two_flips_of_one_lane_cancel(&self) {
        let [_, mut bytes, _] = contents();
        let want = self.of(&bytes);
        for first in 0..8 * BYTES {
            let (a, x) = (first / 8, 1 << (first % 8));
            bytes[a] ^= x;
            for b in (a..BYTES).filter(|b| (self.lane)(*b) == (self.lane)(a)) {
                let later = (0..8).map(|bit| 1 << bit).filter(|y| a != b || *y > x);
                for y in later {
                    let changed = self.change(&mut bytes, want, b, y);
                    assert_ne!(changed, 0, "bytes {a} and {b}");
                }
            }
            bytes[a] ^= x;
        }
    }

    pub fn what_hardware_does_is_seen(&self) {
        let mut r = Random(5);
        for (name, corrupt) in KINDS {
            let mut tried = 0;
            while tried < 20_000 {
                for good in &contents()[1..] {
                    let mut bad = good.clone();
                    corrupt(&mut bad, &mut r);
                    tried += usize::from(bad != *good);
                    let passed = bad != *good && self.of(&bad) == self.of(good);
                    assert!(!passed, "{name} passed");
                }
            }
        }
    }
}

type Corrupt = fn(&mut [u8], &mut Random);

fn swap(d: &mut [u8], r: &mut Random, bytes: usize) {
    let (a, b) = (r.below(d.len() / bytes), r.below(d.len() / bytes));
    (0..bytes).for_each(|i| d.swap(a * bytes + i, b * bytes + i));
}

fn flips(d: &mut [u8], r: &mut Random, n: usize) {
    for _ in 0..n {
        let bit = r.below(8 * d.len());
        d[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Flips one bit position in `n` bytes that are `stride` apart.
fn column(d: &mut [u8], r: &mut Random, stride: usize, n: usize) {
    let (at, bit) = (r.below(d.len() - stride * (n - 1)), r.below(8));
    (0..n).for_each(|i| d[at + stride * i] ^= 1 << bit);
}

fn slip(d: &mut [u8], r: &mut Random, by: usize) {
    let from = r.below(d.len() - by);
    let to = d.len() - by;
    match r.below(2) {
        0 => d.copy_within(from..to, from + by),
        _ => d.copy_within(from + by.., from),
    }
}

const KINDS: [(&str, Corrupt); 13] = [
    ("3 flips", |d, r| flips(d, r, 3)),
    ("4 to 40 flips", |d, r| {
        let n = 4 + r.below(37);
        flips(d, r, n);
    }),
    ("a bit twice, 128 bytes apart", |d, r| column(d, r, 128, 2)),
    ("a bit twice, a group apart", |d, r| column(d, r, GROUP, 2)),
    ("a bit in 4 blocks", |d, r| column(d, r, BLOCK, 4)),
    ("a bit in 5 groups", |d, r| column(d, r, GROUP, 5)),
    ("2 16-bit words swapped", |d, r| swap(d, r, 2)),
    ("2 64-bit words swapped", |d, r| swap(d, r, 8)),
    ("2 blocks swapped", |d, r| swap(d, r, BLOCK)),
    ("zeroed run", |d, r| {
        let from = r.below(d.len());
        let to = (from + 1 + r.below(GROUP)).min(d.len());
        d[from..to].fill(0);
    }),
    ("slipped by a line", |d, r| slip(d, r, 64)),
    ("slipped by a group", |d, r| slip(d, r, GROUP)),
    ("cut and filled with zeros", |d, r| {
        let from = r.below(d.len());
        d[from..].fill(0);
    }),
];
