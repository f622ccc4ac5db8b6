//! Determines which algorithms detect exchanged parts of the data.

use marline_checksum::{sum, Algorithm};

/// Bytes of a long fragment.
const BYTES: usize = 64_000;
/// Lengths of the parts: datagrams of usual networks, and block sizes of the kernels.
const PARTS: [usize; 8] = [4, 16, 64, 256, 1_024, 1_472, 4_096, 8_972];

/// Noise, small integers, and ascending numbers.
fn contents() -> [Vec<u8>; 3] {
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..BYTES).map(|_| noise()).collect();
    let integers = noise.chunks(4).flat_map(|w| [w[0], 0, 0, 0]).collect();
    let counting = (0..BYTES as u32 / 4).flat_map(u32::to_le_bytes).collect();
    [noise, integers, counting]
}

/// The bytes with parts `a` and `b` of this length exchanged.
fn swapped(bytes: &[u8], len: usize, (a, b): (usize, usize)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (before, after) = bytes.split_at_mut(b * len);
    before[a * len..][..len].swap_with_slice(&mut after[..len]);
    bytes
}

/// The number of exchanges that an algorithm misses, and of all exchanges tried.
fn missed(algorithm: Algorithm) -> (usize, usize) {
    let (mut missed, mut all) = (0, 0);
    for bytes in contents() {
        let right = sum(algorithm, 7, &bytes);
        for len in PARTS {
            let last = BYTES / len - 1;
            for pair in [
                (0, 1),
                (0, last),
                (last / 2, last),
                (1, 5.min(last)),
                (2, 3),
            ] {
                let other = swapped(&bytes, len, pair);
                if pair.0 != pair.1 && other != bytes {
                    all += 1;
                    missed += (sum(algorithm, 7, &other) == right) as usize;
                }
            }
        }
    }
    (missed, all)
}

#[test]
fn exactly_the_order_sensitive_algorithms_detect_exchanges() {
    for algorithm in Algorithm::all() {
        let (missed, all) = missed(algorithm);
        assert!(all > 100, "{all}");
        let expected = if algorithm.sees_order() { 0 } else { all };
        assert_eq!(missed, expected, "{algorithm}: of {all}");
    }
}
