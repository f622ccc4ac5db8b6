//! Plain sums and Fletcher's family, written over lanes so that the compiler vectorises them for
//! each tier.
//!
//! Order-dependent sums are split over L lanes: lane `l` holds `a[l]`, the sum of its words, and
//! `b[l]`, the sum of the values of `a[l]` after each word. With m words per lane the sequential
//! second sum is the sum over lanes of `L * b[l] - l * a[l]`, plus `L * m` times the first sum
//! before.

use crate::pieces::{each, tiered, Core};
use crate::store::Store;
use crate::tier::Tier;

/// Bytes per step of the vector loops.
const BLOCK: usize = 64;

#[inline(always)]
fn words32(block: [u8; BLOCK]) -> [u32; 16] {
    let mut out = [0; 16];
    for (o, w) in out.iter_mut().zip(block.as_chunks::<4>().0) {
        *o = u32::from_le_bytes(*w);
    }
    out
}

/// The last bytes as a little-endian word, padded with zeros.
pub(crate) fn padded(tail: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..tail.len()].copy_from_slice(tail);
    u32::from_le_bytes(word)
}

/// Sum of 32-bit words modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum32(pub(crate) u32);

/// Exclusive or of 32-bit words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xor32(pub(crate) u32);

#[inline(always)]
unsafe fn sum32_kernel<S: Store>(sum: &mut u32, dst: *mut u8, src: *const u8, len: usize) {
    let mut lanes = [0u32; 16];
    // SAFETY: the caller's contract.
    unsafe {
        each::<S, BLOCK>(dst, src, len, |block| {
            let words = words32(block);
            for l in 0..16 {
                lanes[l] = lanes[l].wrapping_add(words[l]);
            }
        });
        let done = len - len % BLOCK;
        each::<S, 4>(dst.wrapping_add(done), src.add(done), len - done, |w| {
            lanes[0] = lanes[0].wrapping_add(u32::from_le_bytes(w));
        });
    }
    for l in lanes {
        *sum = sum.wrapping_add(l);
    }
}

#[inline(always)]
unsafe fn xor32_kernel<S: Store>(sum: &mut u32, dst: *mut u8, src: *const u8, len: usize) {
    let mut lanes = [0u32; 16];
    // SAFETY: the caller's contract.
    unsafe {
        each::<S, BLOCK>(dst, src, len, |block| {
            let words = words32(block);
            for l in 0..16 {
                lanes[l] ^= words[l];
            }
        });
        let done = len - len % BLOCK;
        each::<S, 4>(dst.wrapping_add(done), src.add(done), len - done, |w| {
            lanes[0] ^= u32::from_le_bytes(w);
        });
    }
    for l in lanes {
        *sum ^= l;
    }
}

tiered!(sum32, u32, sum32_kernel);
tiered!(xor32, u32, xor32_kernel);

impl Core for Sum32 {
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { sum32::<S>(tier, &mut self.0, dst, src, len) }
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        self.0.wrapping_add(padded(tail)) as u64
    }
}

impl Core for Xor32 {
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { xor32::<S>(tier, &mut self.0, dst, src, len) }
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        (self.0 ^ padded(tail)) as u64
    }
}

/// Fletcher's checksum over 32-bit words modulo 2^32 - 1; the second sum is the high half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fletcher64 {
    a: u64,
    b: u64,
}

/// Fletcher-64's modulus.
const M32: u64 = 0xffff_ffff;
/// Steps until the lanes must be reduced: 4096 * 4096 / 2 words below 2^32 fit in 64 bits.
const FLETCHER_STEPS_MAX: usize = 4096;

/// Partly reduces modulo 2^32 - 1: to below 2^33.
#[inline(always)]
fn fold32(v: u64) -> u64 {
    (v & M32) + (v >> 32)
}

impl Fletcher64 {
    pub(crate) fn new(seed: u64) -> Fletcher64 {
        Fletcher64 {
            a: (seed & M32) % M32,
            b: (seed >> 32) % M32,
        }
    }

    #[inline(always)]
    fn add(&mut self, word: u32) {
        self.a = fold32(self.a + word as u64);
        self.b = fold32(self.b + self.a);
    }
}

#[inline(always)]
unsafe fn fletcher_kernel<S: Store>(
    sums: &mut Fletcher64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    let mut at = 0;
    while len - at >= BLOCK {
        let steps = ((len - at) / BLOCK).min(FLETCHER_STEPS_MAX);
        let (mut a, mut b) = ([0u64; 16], [0u64; 16]);
        // SAFETY: the caller's contract; `steps` blocks remain.
        unsafe {
            each::<S, BLOCK>(dst.wrapping_add(at), src.add(at), steps * BLOCK, |block| {
                let words = words32(block);
                for l in 0..16 {
                    a[l] += words[l] as u64;
                    b[l] += a[l];
                }
            });
        }
        let mut second = fold32(sums.b) + 16 * steps as u64 * (sums.a % M32);
        for l in 0..16 {
            second += 16 * fold32(b[l]) + l as u64 * (M32 - a[l] % M32);
            sums.a += a[l];
        }
        sums.a %= M32;
        sums.b = second % M32;
        at += steps * BLOCK;
    }
    // SAFETY: the caller's contract.
    unsafe {
        each::<S, 4>(dst.wrapping_add(at), src.add(at), len - at, |w| {
            sums.add(u32::from_le_bytes(w))
        });
    }
}

tiered!(fletcher64, Fletcher64, fletcher_kernel);

impl Core for Fletcher64 {
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { fletcher64::<S>(tier, self, dst, src, len) }
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        let mut sums = *self;
        if !tail.is_empty() {
            sums.add(padded(tail));
        }
        (sums.b % M32) << 32 | (sums.a % M32)
    }
}

/// Adler-32 (RFC 1950).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adler32 {
    a: u32,
    b: u32,
}

/// Adler-32's modulus, the largest prime below 2^16.
const M16: u32 = 65521;
/// Steps until the lanes must be reduced: 255 * 4096 * 4097 / 2 is below 2^32.
const ADLER_STEPS_MAX: usize = 4096;

impl Adler32 {
    pub(crate) fn new(seed: u32) -> Adler32 {
        Adler32 {
            a: (1 + (seed & 0xffff)) % M16,
            b: (seed >> 16) % M16,
        }
    }
}

#[inline(always)]
unsafe fn adler_kernel<S: Store>(sums: &mut Adler32, dst: *mut u8, src: *const u8, len: usize) {
    let mut at = 0;
    while len - at >= BLOCK {
        let steps = ((len - at) / BLOCK).min(ADLER_STEPS_MAX);
        let (mut a, mut b) = ([0u32; BLOCK], [0u32; BLOCK]);
        // SAFETY: the caller's contract; `steps` blocks remain.
        unsafe {
            each::<S, BLOCK>(dst.wrapping_add(at), src.add(at), steps * BLOCK, |block| {
                for l in 0..BLOCK {
                    a[l] += block[l] as u32;
                    b[l] += a[l];
                }
            });
        }
        let mut first = 0u64;
        let mut second = sums.b as u64 + (BLOCK * steps) as u64 * sums.a as u64;
        let mut less = 0u64;
        for l in 0..BLOCK {
            first += a[l] as u64;
            second += BLOCK as u64 * b[l] as u64;
            less += l as u64 * a[l] as u64;
        }
        sums.a = ((sums.a as u64 + first) % M16 as u64) as u32;
        sums.b = ((second - less) % M16 as u64) as u32;
        at += steps * BLOCK;
    }
    let (mut a, mut b) = (sums.a, sums.b);
    // SAFETY: the caller's contract.
    unsafe {
        each::<S, 1>(dst.wrapping_add(at), src.add(at), len - at, |[byte]| {
            a += byte as u32;
            b += a;
        });
    }
    (sums.a, sums.b) = (a % M16, b % M16);
}

tiered!(adler32, Adler32, adler_kernel);

impl Core for Adler32 {
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { adler32::<S>(tier, self, dst, src, len) }
    }

    fn finish(&self, _: Tier, _: &[u8]) -> u64 {
        (self.b << 16 | self.a) as u64
    }
}
