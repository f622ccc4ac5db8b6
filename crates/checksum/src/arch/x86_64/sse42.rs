//! CRC-32C with the SSE 4.2 instruction, for packet heads and other short data.
//!
//! The instruction takes three cycles and a new one starts each cycle, so three lanes run side by
//! side; PCLMULQDQ moves the first two to the end of the third.

use crate::crc::{x_power, Castagnoli, Poly};
use std::arch::x86_64::*;

/// Below this three lanes cost more than they gain.
const LANES_MIN_BYTES: usize = 96;
/// The longest lane, in words; longer data is taken in several rounds.
const LANE_MAX_WORDS: usize = 64;

/// `SHIFT[k]` moves a register on by `k` words: x^(64k-33), as product and instruction add x^33.
static SHIFT: [u32; 2 * LANE_MAX_WORDS + 1] = {
    let mut t = [0u32; 2 * LANE_MAX_WORDS + 1];
    let mut k = 1;
    let mut power = x_power(Castagnoli::REFLECTED, 31 + 32);
    while k <= 2 * LANE_MAX_WORDS {
        // The 64-bit form carries a factor of x^32, which puts the value in the low half.
        t[k] = power as u32;
        let mut i = 0;
        while i < 64 {
            power = (power >> 1) ^ (Castagnoli::REFLECTED & (power & 1).wrapping_neg());
            i += 1;
        }
        k += 1;
    }
    t
};

/// Adds bytes to a CRC-32C register.
///
/// # Safety
/// The CPU has SSE 4.2 and PCLMULQDQ.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn update(state: u32, bytes: &[u8]) -> u32 {
    let mut state = state as u64;
    let mut rest = bytes;
    while rest.len() >= LANES_MIN_BYTES {
        let words = (rest.len() / 24).min(LANE_MAX_WORDS);
        let (now, later) = rest.split_at(24 * words);
        state = lanes(state, now, words);
        rest = later;
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = state as u32;
    let (half, tail) = tail.as_chunks::<4>();
    for word in half {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*word));
    }
    for &b in tail {
        state = _mm_crc32_u8(state, b);
    }
    state
}

/// Three lanes of `words` words each.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn lanes(state: u64, bytes: &[u8], words: usize) -> u64 {
    let all = bytes.as_chunks::<8>().0;
    let (a, bc) = all.split_at(words);
    let (b, c) = bc.split_at(words);
    let (mut x, mut y, mut z) = (state, 0, 0);
    let last = words - 1;
    for i in 0..last {
        x = _mm_crc32_u64(x, u64::from_le_bytes(a[i]));
        y = _mm_crc32_u64(y, u64::from_le_bytes(b[i]));
        z = _mm_crc32_u64(z, u64::from_le_bytes(c[i]));
    }
    x = _mm_crc32_u64(x, u64::from_le_bytes(a[last]));
    y = _mm_crc32_u64(y, u64::from_le_bytes(b[last]));
    let moved = shift(x, 2 * words) ^ shift(y, words);
    _mm_crc32_u64(z, u64::from_le_bytes(c[last]) ^ moved)
}

/// What the instruction must take in to move `state` on by `words` words.
#[inline]
#[target_feature(enable = "sse2,pclmulqdq")]
fn shift(state: u64, words: usize) -> u64 {
    let k = _mm_cvtsi32_si128(SHIFT[words] as i32);
    let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(state as i64), k);
    _mm_cvtsi128_si64(product) as u64
}
