//! The oracle: every algorithm in its simplest, slowest form.

use marline_checksum::Algorithm;

/// The documented seed mixing.
pub fn mix(seed: u64) -> u64 {
    let v = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (v ^ (v >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn mix32(seed: u64) -> u32 {
    (mix(seed) >> 32) as u32
}

fn crc(poly: u64, ones: u64, start: u64, bytes: &[u8]) -> u64 {
    let mut crc = start;
    for &b in bytes {
        crc ^= b as u64;
        for _ in 0..8 {
            crc = (crc >> 1) ^ (poly & (crc & 1).wrapping_neg());
        }
    }
    crc ^ ones
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |c: &[u8]| c.iter().rev().fold(0, |w, &b| w << 8 | b as u32);
    bytes.chunks(4).map(word).collect()
}

fn adler(seed: u32, bytes: &[u8]) -> u64 {
    let mut a = (1 + (seed & 0xffff)) % 65521;
    let mut b = (seed >> 16) % 65521;
    for &byte in bytes {
        a = (a + byte as u32) % 65521;
        b = (b + a) % 65521;
    }
    (b as u64) << 16 | a as u64
}

fn fletcher(seed: u64, bytes: &[u8]) -> u64 {
    let m = 0xffff_ffff;
    let (mut a, mut b) = ((seed & m) % m, (seed >> 32) % m);
    for w in words(bytes) {
        a = (a + w as u64) % m;
        b = (b + a) % m;
    }
    b << 32 | a
}

fn fnv(mut h: u64, bytes: &[u8]) -> u64 {
    for &b in bytes {
        h = (h ^ b as u64).wrapping_mul(0x100_0000_01b3);
    }
    h
}

fn fnv_words(mut h: u64, bytes: &[u8]) -> u64 {
    let whole = bytes.len() / 8 * 8;
    for c in bytes[..whole].chunks(8) {
        let w = c.iter().rev().fold(0, |w, &b| w << 8 | b as u64);
        h = (h ^ w).wrapping_mul(0x100_0000_01b3);
    }
    fnv(h, &bytes[whole..])
}

fn murmur(seed: u32, bytes: &[u8]) -> u32 {
    let m = 0x5bd1_e995u32;
    let step = |h: u32, mut k: u32| {
        k = k.wrapping_mul(m);
        k ^= k >> 24;
        h.wrapping_mul(m) ^ k.wrapping_mul(m)
    };
    let whole = bytes.len() / 4 * 4;
    let mut h = words(&bytes[..whole]).into_iter().fold(seed, step);
    let tail = words(&bytes[whole..]).first().copied().unwrap_or(0);
    h = step(step(h, tail), bytes.len() as u32);
    h ^= h >> 13;
    h = h.wrapping_mul(m);
    h ^ (h >> 15)
}

fn superfast(mut h: u32, bytes: &[u8]) -> u32 {
    let half = |a: u8, b: u8| a as u32 | (b as u32) << 8;
    let mut rest = bytes;
    while rest.len() >= 4 {
        h = h.wrapping_add(half(rest[0], rest[1]));
        h = (h << 16) ^ (half(rest[2], rest[3]) << 11) ^ h;
        h = h.wrapping_add(h >> 11);
        rest = &rest[4..];
    }
    let (add, left, right) = match rest.len() {
        3 => (half(rest[0], rest[1]), 16, 11),
        2 => (half(rest[0], rest[1]), 11, 17),
        1 => (rest[0] as i8 as u32, 10, 1),
        _ => (0, 32, 32),
    };
    if left < 32 {
        h = h.wrapping_add(add);
        h ^= h << left;
        if rest.len() == 3 {
            h ^= ((rest[2] as i8 as i32) << 18) as u32;
        }
        h = h.wrapping_add(h >> right);
    }
    h ^= h << 3;
    h = h.wrapping_add(h >> 5);
    h ^= h << 4;
    h = h.wrapping_add(h >> 17);
    h ^= h << 25;
    h.wrapping_add(h >> 6)
}

fn jenkins(mut h: u32, bytes: &[u8]) -> u32 {
    for &b in bytes {
        h = h.wrapping_add(b as u32);
        h = h.wrapping_add(h << 10);
        h ^= h >> 6;
    }
    h = h.wrapping_add(h << 3);
    h ^= h >> 11;
    h.wrapping_add(h << 15)
}

/// The `i`-th number of SplitMix64 started from the first bits of the fraction of pi.
fn splitmix(i: u64) -> u64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = z.wrapping_add(0x243f_6a88_85a3_08d3);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sums of products of words, block by block, modulo CRC-64/NVME's polynomial, with the highest
/// power in the highest bit.
fn crc64_nh(start: u64, bytes: &[u8]) -> u64 {
    const POLY: u64 = 0xad93_d235_94c9_3659;
    let times_x = |v: u64| (v << 1) ^ (POLY & (v >> 63).wrapping_neg());
    let times = |a: u64, b: u64| {
        let bit = |sum, i: u32| times_x(sum) ^ (b & (a >> i & 1).wrapping_neg());
        (0..64).rev().fold(0, bit)
    };
    let mut sum = 0u64;
    for block in bytes.chunks(1024) {
        sum = (0..8192).fold(sum, |v, _| times_x(v));
        for (lane, pair) in block.chunks(16).enumerate() {
            let mut words = [0; 16];
            words[..pair.len()].copy_from_slice(pair);
            let word = |i: usize| {
                let half = words[8 * i..8 * i + 8].try_into().expect("eight bytes");
                u64::from_le_bytes(half) ^ splitmix((2 * lane + i) as u64)
            };
            // The first bit of the data is the highest power.
            sum ^= times(word(0).reverse_bits(), word(1).reverse_bits());
        }
    }
    times_x(sum).reverse_bits() ^ start
}

/// The sum, or `None` if the oracle is the portable kernel (AES lanes), or another crate (AEGIS).
pub fn sum(algorithm: Algorithm, seed: u64, bytes: &[u8]) -> Option<u64> {
    let (m, m32) = (mix(seed), mix32(seed));
    Some(match algorithm {
        Algorithm::None => 0,
        Algorithm::Crc64Nvme => crc(0x9a6c_9329_ac4b_c9b5, !0, !m, bytes),
        Algorithm::Crc32c => crc(0x82f6_3b78, 0xffff_ffff, !m32 as u64, bytes),
        Algorithm::Xxh3 => xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed),
        Algorithm::AesLanes | Algorithm::Aegis => return None,
        Algorithm::Crc64Nh => crc64_nh(m, bytes),
        Algorithm::Fletcher64 => fletcher(m, bytes),
        Algorithm::Adler32 => adler(m32, bytes),
        Algorithm::Fnv1a => fnv_words(m ^ 0xcbf2_9ce4_8422_2325, bytes),
        Algorithm::Fnv1aBytes => fnv(m ^ 0xcbf2_9ce4_8422_2325, bytes),
        Algorithm::Murmur2a => murmur(m32, bytes) as u64,
        Algorithm::SuperFast => superfast(m32, bytes) as u64,
        Algorithm::Jenkins => jenkins(m32, bytes) as u64,
        Algorithm::Knuth => words(bytes)
            .into_iter()
            .fold(m32, |h, w| (h ^ w).wrapping_mul(2_654_435_761))
            as u64,
        Algorithm::Sum32 => words(bytes).into_iter().fold(m32, u32::wrapping_add) as u64,
        Algorithm::Xor32 => words(bytes).into_iter().fold(m32, |h, w| h ^ w) as u64,
    })
}
