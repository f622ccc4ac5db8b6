//! The portable kernels access only the given memory: few and short runs, in memory that ends with
//! the data, so that Miri takes only minutes (`make miri`).

use marline_checksum::{copy_and_sum, sum, Algorithm, CopyMode, Summer, Tier, Variant};

/// Lengths around words, blocks and stripes of the kernels.
const LENGTHS: [usize; 10] = [0, 1, 7, 8, 9, 63, 64, 65, 131, 300];

/// The algorithms whose code is Rust.
fn interpreted() -> impl Iterator<Item = Algorithm> {
    Algorithm::all().filter(|a| !a.is_keyed())
}

/// Exactly `len` bytes, beginning `at` bytes into their allocation.
fn data(len: usize, at: usize) -> Vec<u8> {
    (0..len + at).map(|i| (i * 37 + 11) as u8).collect()
}

#[test]
fn pieces_and_copies_give_the_sum_of_the_whole() {
    for algorithm in interpreted() {
        for (n, &len) in LENGTHS.iter().enumerate() {
            let at = n % 3;
            let bytes = data(len, at);
            let from = &bytes[at..];
            let want = sum(algorithm, 5, from);
            let mut pieces = Summer::with_tier(algorithm, 5, Tier::Portable);
            from.chunks(13).for_each(|piece| pieces.update(piece));
            assert_eq!(pieces.finish(), want, "{algorithm} {len}");
            let mut out = vec![0; len];
            // SAFETY: `out` has the length of `from` and does not overlap it.
            let got = unsafe { copy_and_sum(algorithm, 5, out.as_mut_ptr(), from.as_ptr(), len) };
            assert!(got == want && out == from, "{algorithm} {len}");
        }
    }
}

#[test]
fn every_way_of_copying_stays_within_its_memory() {
    for algorithm in interpreted() {
        for mode in [CopyMode::Cached, CopyMode::Streaming] {
            for variant in [Variant::Fused, Variant::Blocked] {
                let from = data(150, 0);
                let mut out = vec![0; 150];
                let mut summer = Summer::with_tier(algorithm, 1, Tier::Portable);
                for (a, b) in [(0, 70), (70, 71), (71, 150)] {
                    // SAFETY: both are 150 bytes long and do not overlap.
                    unsafe {
                        let to = out.as_mut_ptr().add(a);
                        summer.copy_with(to, from.as_ptr().add(a), b - a, mode, variant);
                    }
                }
                assert_eq!(summer.finish(), sum(algorithm, 1, &from), "{algorithm}");
                assert!(out == from, "{algorithm} {mode:?} {variant:?}");
            }
        }
    }
}
