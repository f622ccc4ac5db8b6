//! CRC-32C by its instruction, for packet heads and other short data.
//!
//! The instruction has a latency of two or three cycles and starts every cycle, so three lanes run
//! side by side; a carry-less product advances the first two to the end of the third.

use super::vector::Vector;
use crate::crc::{x_power, Castagnoli, Poly};

/// For shorter data, three lanes cost more than they gain.
const LANES_MIN_BYTES: usize = 96;
/// Most words per lane; longer data is processed in several rounds.
const LANE_MAX_WORDS: usize = 64;

/// `SHIFT[k]` advances a register by `k` words: x^(64k-33), as product and instruction add x^33.
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
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn update<V: Vector>(mut state: u32, bytes: &[u8]) -> u32 {
    let mut rest = bytes;
    // SAFETY: the caller's contract.
    unsafe {
        while rest.len() >= LANES_MIN_BYTES {
            let words = (rest.len() / 24).min(LANE_MAX_WORDS);
            let (now, later) = rest.split_at(24 * words);
            state = lanes::<V>(state, now, words);
            rest = later;
        }
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            state = V::crc32c_word(state, u64::from_le_bytes(*word));
        }
        let (half, tail) = tail.as_chunks::<4>();
        for half in half {
            state = V::crc32c_half(state, u32::from_le_bytes(*half));
        }
        for &b in tail {
            state = V::crc32c_byte(state, b);
        }
        state
    }
}

/// Three lanes of `words` words each.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
unsafe fn lanes<V: Vector>(state: u32, bytes: &[u8], words: usize) -> u32 {
    let all = bytes.as_chunks::<8>().0;
    let (a, bc) = all.split_at(words);
    let (b, c) = bc.split_at(words);
    let (mut x, mut y, mut z) = (state, 0, 0);
    let last = words - 1;
    // SAFETY: the caller's contract.
    unsafe {
        for i in 0..last {
            x = V::crc32c_word(x, u64::from_le_bytes(a[i]));
            y = V::crc32c_word(y, u64::from_le_bytes(b[i]));
            z = V::crc32c_word(z, u64::from_le_bytes(c[i]));
        }
        x = V::crc32c_word(x, u64::from_le_bytes(a[last]));
        y = V::crc32c_word(y, u64::from_le_bytes(b[last]));
        let moved = shift::<V>(x, 2 * words) ^ shift::<V>(y, words);
        V::crc32c_word(z, u64::from_le_bytes(c[last]) ^ moved)
    }
}

/// The operand with which the instruction advances `state` by `words` words.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
unsafe fn shift<V: Vector>(state: u32, words: usize) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        let product = V::of([state.into(), 0]).multiply_low(V::of([SHIFT[words].into(), 0]));
        product.halves()[0]
    }
}
