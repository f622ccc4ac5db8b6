//! All kinds of stores, including those for another maker's processor, against the portable kernel.

use super::*;
use crate::arch::soft;
use crate::store::{Far, Streaming, Sum};
use crate::{tier, Tier};

/// Lengths around each unit: bytes, lanes, lines, blocks.
fn lengths() -> impl Iterator<Item = usize> {
    let blocks = [2 * BLOCK, 3 * BLOCK, 4 * BLOCK];
    (0..1200).chain(
        blocks
            .into_iter()
            .flat_map(|n| [n - 1, n, n + 1, n + 17, n + 1008]),
    )
}

fn noise(len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|i| crate::lanes::aes::splitmix_from(7, i));
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

/// The expected sum of `bytes`.
fn expected(bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable, and `Sum` stores nothing.
    unsafe { soft::nh_whole::<Sum>(std::ptr::null_mut(), bytes.as_ptr(), bytes.len()) }
}

/// Room for a copy between guard bytes.
struct Room(Vec<u8>);

impl Room {
    const AROUND: usize = 128;
    const UNTOUCHED: u8 = 0xa5;

    fn new(len: usize) -> Room {
        Room(vec![Room::UNTOUCHED; len + 2 * Room::AROUND])
    }

    /// The start of a copy `astray` bytes after the start of a line.
    fn start(&self, astray: usize) -> usize {
        self.0.as_ptr().align_offset(LINE) + astray
    }

    /// Returns whether the copy is complete and the guard bytes are intact; resets all bytes
    /// afterwards.
    fn holds(&mut self, start: usize, bytes: &[u8]) -> bool {
        let (before, rest) = self.0.split_at_mut(start);
        let (copy, after) = rest.split_at_mut(bytes.len());
        let around = before.iter().chain(after.iter());
        let right = copy == bytes && around.into_iter().all(|b| *b == Room::UNTOUCHED);
        copy.fill(Room::UNTOUCHED);
        right
    }
}

/// The sum in one call, and in two with the first `first` lanes separate.
unsafe fn both_ways<S: Store>(dst: *mut u8, bytes: &[u8], first: usize) -> [u64; 2] {
    let (src, len) = (bytes.as_ptr(), bytes.len());
    let whole_lanes = len - len % LANE;
    let first = (first * LANE).min(whole_lanes);
    // SAFETY: the callers' contract: room at `dst` for all bytes if `S` stores.
    unsafe {
        let whole = whole_by::<S>(dst, src, len);
        let mut products = Products::default();
        lanes_by::<S>(&mut products, dst, src, first);
        let (to, from) = (dst.wrapping_add(first), src.add(first));
        lanes_by::<S>(&mut products, to, from, whole_lanes - first);
        let to = dst.wrapping_add(whole_lanes);
        let words = crate::lanes::nh::last::<S>(to, src.add(whole_lanes), len - whole_lanes);
        [whole, soft::nh_rest(&products, words)]
    }
}

/// Sums and copies of all lengths, at several offsets from a line.
fn check<S: Store>() {
    let all = noise(6000);
    for len in lengths() {
        let bytes = &all[..len];
        let want = expected(bytes);
        let mut room = Room::new(len);
        for astray in [0, 16, 32, 48, 1, 8, 15, 63] {
            if S::STREAM && astray % LANE != 0 {
                continue; // outside the contract
            }
            let start = room.start(astray);
            // SAFETY: at least `len` bytes fit after `start`, which is below `AROUND`; the test
            // checked the CPU's features.
            let got = unsafe { both_ways::<S>(room.0[start..].as_mut_ptr(), bytes, astray % 5) };
            assert_eq!(got, [want; 2], "{len} {astray}");
            assert!(!S::STORE || room.holds(start, bytes), "{len} {astray}");
        }
    }
}

#[test]
fn every_way_to_store_sums_and_copies_the_same() {
    if tier() != Tier::Avx512 {
        eprintln!(
            "nothing to test: these kernels want AVX-512, and this is {:?}",
            tier()
        );
        return;
    }
    check::<Sum>();
    check::<Far>();
    check::<Cached>();
    check::<Claimed>();
    check::<Paired>();
    check::<Streaming>();
}
