//! Every algorithm, tier, copy mode and variant against the naive oracle, over random data, seeds,
//! alignments and splits.

mod naive;

use marline_checksum::{
    copy_and_sum, stream_min_bytes, sum, tier, Algorithm, CopyMode, Summer, Tier, Variant,
};
use proptest::prelude::*;

const TIERS: [Tier; 6] = [
    Tier::Portable,
    Tier::Sse42,
    Tier::Avx2,
    Tier::Vpclmul,
    Tier::Avx512,
    Tier::Neon,
];
const WAYS: [(CopyMode, Variant); 4] = [
    (CopyMode::Cached, Variant::Fused),
    (CopyMode::Cached, Variant::Blocked),
    (CopyMode::Streaming, Variant::Fused),
    (CopyMode::Streaming, Variant::Blocked),
];

fn data(len: usize, mut x: u64) -> Vec<u8> {
    x |= 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// The sum that every tier must return: the oracle's, or the portable kernel's.
fn expected(algorithm: Algorithm, seed: u64, bytes: &[u8]) -> u64 {
    naive::sum(algorithm, seed, bytes).unwrap_or_else(|| {
        let mut s = Summer::with_tier(algorithm, seed, Tier::Portable);
        s.update(bytes);
        s.finish()
    })
}

/// Divides `bytes` into pieces that end at `cuts`.
fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<(usize, usize)> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| (w[0], w[1])).collect()
}

fn check(algorithm: Algorithm, seed: u64, bytes: &[u8], cuts: &[usize], offset: usize) {
    let want = expected(algorithm, seed, bytes);
    let name = algorithm.name();
    assert_eq!(sum(algorithm, seed, bytes), want, "{name}");
    for tier in TIERS {
        let mut s = Summer::with_tier(algorithm, seed, tier);
        for (a, b) in pieces(bytes, cuts) {
            s.update(&bytes[a..b]);
        }
        assert_eq!(s.finish(), want, "{name} {tier:?}");
        let mut s = Summer::with_tier(algorithm, seed, tier);
        for (a, b) in pieces(bytes, cuts) {
            s.update_far(&bytes[a..b]);
        }
        assert_eq!(s.finish(), want, "{name} {tier:?} far");
        for (mode, variant) in WAYS {
            let mut out = vec![0xa5; bytes.len() + 2 * offset + 1];
            let mut s = Summer::with_tier(algorithm, seed, tier);
            for (a, b) in pieces(bytes, cuts) {
                // SAFETY: `out` has room for all of `bytes` from `offset` on.
                unsafe {
                    let to = out.as_mut_ptr().add(offset + a);
                    s.copy_with(to, bytes.as_ptr().add(a), b - a, mode, variant);
                }
            }
            assert_eq!(s.finish(), want, "{name} {tier:?} {mode:?} {variant:?}");
            let (copied, after) = out[offset..].split_at(bytes.len());
            assert!(copied == bytes, "{name} {tier:?} {mode:?} {variant:?}");
            let untouched = |b: &u8| *b == 0xa5;
            assert!(out[..offset].iter().all(untouched) && after.iter().all(untouched));
        }
    }
    let mut out = vec![0; bytes.len()];
    // SAFETY: `out` has the length of `bytes` and does not overlap it.
    let one = unsafe { copy_and_sum(algorithm, seed, out.as_mut_ptr(), bytes.as_ptr(), out.len()) };
    assert_eq!(one, want, "{name}");
    assert!(out == bytes);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn any_split_of_anything(
        len in prop_oneof![0usize..40, 200usize..700, 0usize..3000],
        start in 0usize..70,
        offset in 0usize..70,
        seed in prop_oneof![Just(0u64), any::<u64>()],
        noise in any::<u64>(),
        cuts in prop::collection::vec(any::<usize>(), 0..5),
    ) {
        let d = data(start + len, noise);
        for algorithm in Algorithm::all() {
            check(algorithm, seed, &d[start..], &cuts, offset);
        }
    }
}

#[test]
fn every_short_length() {
    let d = data(700, 7);
    for len in 0..d.len() {
        for algorithm in Algorithm::all() {
            let want = expected(algorithm, 3, &d[..len]);
            for tier in TIERS {
                let mut s = Summer::with_tier(algorithm, 3, tier);
                s.update(&d[..len]);
                assert_eq!(s.finish(), want, "{algorithm} {tier:?} {len}");
            }
            assert_eq!(sum(algorithm, 3, &d[..len]), want, "{algorithm} {len}");
            let mut out = [0xa5u8; 720];
            // SAFETY: at least `len` bytes fit, not overlapping `d`.
            let got = unsafe { copy_and_sum(algorithm, 3, out[8..].as_mut_ptr(), d.as_ptr(), len) };
            assert_eq!(got, want, "{algorithm} {len}");
            assert!(out[8..8 + len] == d[..len], "{algorithm} {len}");
            let around = out[..8].iter().chain(&out[8 + len..]);
            assert!(around.into_iter().all(|b| *b == 0xa5), "{algorithm} {len}");
        }
    }
}

/// Long runs of maximal bytes bring the sums closest to overflow.
#[test]
fn long_and_full() {
    for bytes in [vec![0xff; 600_001], data(300_007, 11)] {
        for algorithm in Algorithm::all() {
            check(algorithm, u64::MAX, &bytes, &[70_000, 70_001], 3);
        }
    }
}

const STREAMED_AND_LANES: [Algorithm; 4] = [
    Algorithm::Crc64Nvme,
    Algorithm::Crc64Nh,
    Algorithm::Crc32c,
    Algorithm::AesLanes,
];

/// Each copy method that is chosen by size: in L1, beyond L1, streaming; and both sides of the
/// thresholds.
#[test]
fn copies_of_every_size_class() {
    let all = data(stream_min_bytes() + 1100, 3);
    let steps = [32 << 10, (32 << 10) + 1024, stream_min_bytes()];
    let lens = steps.iter().flat_map(|s| [s - 1, *s, s + 255, s + 512]);
    for (len, offset) in lens.zip([0, 16, 64, 1].into_iter().cycle()) {
        let bytes = &all[3..3 + len];
        for algorithm in STREAMED_AND_LANES {
            let mut s = Summer::with_tier(algorithm, 5, Tier::Portable);
            s.update(bytes);
            let mut out = vec![0xa5u8; offset + len + 65];
            // SAFETY: `len` bytes fit after `offset`, not overlapping `all`.
            let got = unsafe {
                let to = out.as_mut_ptr().add(offset);
                copy_and_sum(algorithm, 5, to, bytes.as_ptr(), len)
            };
            assert_eq!(got, s.finish(), "{algorithm} {len} {offset}");
            assert!(
                &out[offset..offset + len] == bytes,
                "{algorithm} {len} {offset}"
            );
            let (before, after) = (&out[..offset], &out[offset + len..]);
            assert!(
                before.iter().chain(after).all(|b| *b == 0xa5),
                "{algorithm} {len} {offset}"
            );
        }
    }
}

/// A kernel that aligns the destination processes the bytes before the first line separately, so
/// its blocks begin within a line.
#[test]
fn copies_to_any_offset_within_a_line() {
    let all = data(5000, 17);
    for len in [
        1023, 1024, 1025, 1344, 2047, 2048, 2049, 3072, 4095, 4160, 5000,
    ] {
        let bytes = &all[..len];
        for algorithm in STREAMED_AND_LANES {
            let want = expected(algorithm, 7, bytes);
            for astray in [0, 1, 8, 16, 32, 40, 48] {
                let mut out = vec![0xa5u8; len + 192];
                let at = out.as_ptr().align_offset(64) + astray;
                // SAFETY: `len` bytes fit after `at`, which is below 128.
                let got = unsafe {
                    copy_and_sum(algorithm, 7, out.as_mut_ptr().add(at), bytes.as_ptr(), len)
                };
                assert_eq!(got, want, "{algorithm} {len} {astray}");
                let (before, after) = (&out[..at], &out[at + len..]);
                assert!(before.iter().chain(after).all(|b| *b == 0xa5));
                assert!(&out[at..at + len] == bytes, "{algorithm} {len} {astray}");
                let mut s = Summer::new(algorithm, 7);
                for (a, b) in pieces(bytes, &[1024]) {
                    // SAFETY: as above.
                    unsafe {
                        let to = out.as_mut_ptr().add(at + a);
                        s.copy(to, bytes.as_ptr().add(a), b - a);
                    }
                }
                assert_eq!(s.finish(), want, "{algorithm} {len} {astray}");
            }
        }
    }
}

/// Pieces that end within a block of products, streamed to places aligned to one lane but not to
/// two.
#[test]
fn lanes_are_streamed_at_any_offset_within_a_block() {
    let bytes = data(9000, 13);
    let want = expected(Algorithm::Crc64Nh, 3, &bytes);
    for tier in TIERS {
        for first in [16, 48, 1008, 1040, 2064] {
            let mut out = vec![0xa5u8; bytes.len() + 32];
            let at = (out.as_ptr().align_offset(32) % 32) ^ 16;
            let mut s = Summer::with_tier(Algorithm::Crc64Nh, 3, tier);
            for (a, b) in [(0, first), (first, bytes.len())] {
                // SAFETY: `bytes.len()` bytes fit after `at`, which is below 32.
                unsafe {
                    let (to, from) = (out.as_mut_ptr().add(at + a), bytes.as_ptr().add(a));
                    s.copy_with(to, from, b - a, CopyMode::Streaming, Variant::Fused);
                }
            }
            assert_eq!(s.finish(), want, "{tier:?} {first}");
            assert!(out[at..at + bytes.len()] == bytes, "{tier:?} {first}");
        }
    }
}

#[test]
fn published_values() {
    let vectors: [(Algorithm, &[u8], u64); 25] = [
        (Algorithm::Crc64Nvme, b"123456789", 0xae8b_1486_0a79_9888),
        (Algorithm::Crc32c, b"123456789", 0xe306_9283),
        // Our own values, on which peers of all versions must agree.
        (Algorithm::Crc64Nh, b"123456789", 0xa800_1188_9d36_4422),
        (Algorithm::Crc64Nh, &[0x5a; 3000], 0x9ceb_7836_55fc_28b3),
        // The xxHash project's value for empty data.
        (Algorithm::Xxh3, b"", 0x2d06_8005_38d3_94c2),
        // Wikipedia, "Fletcher's checksum".
        (Algorithm::Fletcher64, b"abcde", 0xc8c6_c527_6463_62c6),
        (Algorithm::Fletcher64, b"abcdef", 0xc8c7_2b27_6463_c8c6),
        (Algorithm::Fletcher64, b"abcdefgh", 0x312e_2b28_ccca_c8c6),
        // Wikipedia, "Adler-32"; zlib.
        (Algorithm::Adler32, b"", 1),
        (Algorithm::Adler32, b"Wikipedia", 0x11e6_0398),
        (Algorithm::Adler32, b"123456789", 0x091e_01de),
        // The FNV Internet draft, appendix C.
        (Algorithm::Fnv1aBytes, b"", 0xcbf2_9ce4_8422_2325),
        (Algorithm::Fnv1aBytes, b"a", 0xaf63_dc4c_8601_ec8c),
        (Algorithm::Fnv1aBytes, b"foobar", 0x8594_4171_f739_67e8),
        // Less than a word: as published.
        (Algorithm::Fnv1a, b"foobar", 0x8594_4171_f739_67e8),
        // Wikipedia, "Jenkins hash function".
        (Algorithm::Jenkins, b"", 0),
        (Algorithm::Jenkins, b"a", 0xca2e_9442),
        (
            Algorithm::Jenkins,
            b"The quick brown fox jumps over the lazy dog",
            0x519e_91f5,
        ),
        // Knuth: 1 and 2 times the constant; the rest computed by hand.
        (Algorithm::Knuth, &[1, 0, 0, 0], 2_654_435_761),
        (Algorithm::Knuth, &[2], 1_013_904_226),
        (Algorithm::Sum32, &[1, 0, 0, 0, 255, 255, 255, 255, 7], 7),
        (
            Algorithm::Xor32,
            &[1, 0, 0, 0, 3, 0, 0, 0x80, 4],
            0x8000_0006,
        ),
        (Algorithm::None, b"anything", 0),
        (Algorithm::Sum32, b"", 0),
        (Algorithm::Xor32, b"", 0),
    ];
    for (algorithm, bytes, want) in vectors {
        assert_eq!(sum(algorithm, 0, bytes), want, "{algorithm} of {bytes:?}");
    }
}

#[test]
fn seeds_make_a_difference() {
    for algorithm in Algorithm::all().filter(|a| *a != Algorithm::None) {
        let mut seen: Vec<u64> = (0..200).map(|s| sum(algorithm, s, b"same data")).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 200, "{algorithm}");
    }
}

/// The guarantee of `AesLanes`: an error inside one block of 16 bytes changes the sum; tested for
/// each bit and for many whole blocks.
#[test]
fn aes_lanes_sees_errors_within_a_block() {
    let good = data(1344, 5);
    let want = sum(Algorithm::AesLanes, 9, &good);
    let mut bad = good.clone();
    for bit in 0..8 * good.len() {
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(sum(Algorithm::AesLanes, 9, &bad), want, "bit {bit}");
        bad[bit / 8] ^= 1 << (bit % 8);
    }
    for block in 0..84 {
        for noise in 1000..1050 {
            bad.copy_from_slice(&good);
            bad[16 * block..][..16].copy_from_slice(&data(16, noise));
            assert_ne!(sum(Algorithm::AesLanes, 9, &bad), want, "block {block}");
        }
    }
}

/// The tier matches the CPU's features, so that no kernel stays unused.
#[test]
fn the_tier_is_what_the_cpu_has() {
    assert!(TIERS.contains(&tier()));
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        let able = has!("aes") && has!("pmull") && has!("crc");
        assert_eq!(tier() == Tier::Neon, able);
    }
    let s = Summer::with_tier(Algorithm::Crc64Nvme, 0, Tier::Avx512);
    assert_eq!(s.finish(), sum(Algorithm::Crc64Nvme, 0, b""));
}
