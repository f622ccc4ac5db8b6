//! The hash functions of the papers: inherently serial, about one multiplication per word.

use crate::papers::sums::padded;
use crate::pieces::{each, Core};
use crate::store::Store;
use crate::tier::Tier;

/// Jenkins' one-at-a-time hash (Dr. Dobb's Journal, September 1997).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jenkins(pub(crate) u32);

impl Core for Jenkins {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.0;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 1>(dst, src, len, |[byte]| {
                h = h.wrapping_add(byte as u32);
                h = h.wrapping_add(h << 10);
                h ^= h >> 6;
            });
        }
        self.0 = h;
    }

    fn finish(&self, _: Tier, _: &[u8]) -> u64 {
        let mut h = self.0;
        h = h.wrapping_add(h << 3);
        h ^= h >> 11;
        h.wrapping_add(h << 15) as u64
    }
}

/// FNV's 64-bit offset basis and prime.
pub(crate) const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a as published: 64 bits wide, byte by byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FnvBytes(pub(crate) u64);

impl Core for FnvBytes {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.0;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 1>(dst, src, len, |[byte]| {
                h = (h ^ byte as u64).wrapping_mul(FNV_PRIME);
            });
        }
        self.0 = h;
    }

    fn finish(&self, _: Tier, _: &[u8]) -> u64 {
        self.0
    }
}

/// FNV-1a over 64-bit words, as in the papers' library; the bytes after the last whole word are
/// added as published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FnvWords(pub(crate) u64);

impl Core for FnvWords {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.0;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 8>(dst, src, len, |word| {
                h = (h ^ u64::from_le_bytes(word)).wrapping_mul(FNV_PRIME);
            });
        }
        self.0 = h;
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        tail.iter()
            .fold(self.0, |h, &b| (h ^ b as u64).wrapping_mul(FNV_PRIME))
    }
}

/// Knuth's multiplicative hash, chained over 32-bit words (The Art of Computer Programming 6.4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knuth(pub(crate) u32);

/// The prime nearest to 2^32 over the golden ratio.
const KNUTH: u32 = 2_654_435_761;

impl Core for Knuth {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.0;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 4>(dst, src, len, |word| {
                h = (h ^ u32::from_le_bytes(word)).wrapping_mul(KNUTH);
            });
        }
        self.0 = h;
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        if tail.is_empty() {
            return self.0 as u64;
        }
        (self.0 ^ padded(tail)).wrapping_mul(KNUTH) as u64
    }
}

/// Appleby's MurmurHash2A, which includes the length at the end and so allows incremental use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Murmur2a {
    h: u32,
    len: u32,
}

const MURMUR: u32 = 0x5bd1_e995;

#[inline(always)]
fn murmur_mix(h: u32, word: u32) -> u32 {
    let mut k = word.wrapping_mul(MURMUR);
    k ^= k >> 24;
    h.wrapping_mul(MURMUR) ^ k.wrapping_mul(MURMUR)
}

impl Murmur2a {
    pub(crate) fn new(seed: u32) -> Murmur2a {
        Murmur2a { h: seed, len: 0 }
    }
}

impl Core for Murmur2a {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.h;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 4>(dst, src, len, |word| {
                h = murmur_mix(h, u32::from_le_bytes(word));
            });
        }
        self.h = h;
        // The published function takes the length modulo 2^32.
        self.len = self.len.wrapping_add(len as u32);
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        let len = self.len.wrapping_add(tail.len() as u32);
        let mut h = murmur_mix(murmur_mix(self.h, padded(tail)), len);
        h ^= h >> 13;
        h = h.wrapping_mul(MURMUR);
        (h ^ h >> 15) as u64
    }
}

/// Hsieh's SuperFastHash. The original starts from the length, which is unknown in incremental use.
/// This version starts from the seed, which the caller derives from the length and other values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuperFast(pub(crate) u32);

impl Core for SuperFast {
    unsafe fn groups<S: Store>(&mut self, _: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let mut h = self.0;
        // SAFETY: the caller's contract.
        unsafe {
            each::<S, 4>(dst, src, len, |[a, b, c, d]| {
                h = h.wrapping_add(u16::from_le_bytes([a, b]) as u32);
                let high = (u16::from_le_bytes([c, d]) as u32) << 11;
                h = (h << 16) ^ high ^ h;
                h = h.wrapping_add(h >> 11);
            });
        }
        self.0 = h;
    }

    fn finish(&self, _: Tier, tail: &[u8]) -> u64 {
        let mut h = self.0;
        // Single bytes are signed in the original.
        let signed = |b: u8| b as i8 as u32;
        match *tail {
            [a, b, c] => {
                h = h.wrapping_add(u16::from_le_bytes([a, b]) as u32);
                h ^= h << 16;
                h ^= signed(c) << 18;
                h = h.wrapping_add(h >> 11);
            }
            [a, b] => {
                h = h.wrapping_add(u16::from_le_bytes([a, b]) as u32);
                h ^= h << 11;
                h = h.wrapping_add(h >> 17);
            }
            [a] => {
                h = h.wrapping_add(signed(a));
                h ^= h << 10;
                h = h.wrapping_add(h >> 1);
            }
            _ => {}
        }
        h ^= h << 3;
        h = h.wrapping_add(h >> 5);
        h ^= h << 4;
        h = h.wrapping_add(h >> 17);
        h ^= h << 25;
        h.wrapping_add(h >> 6) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Pieces;
    use crate::store::Sum;
    use crate::tier::tier;

    fn run<C: Core, const N: usize>(core: C, bytes: &[u8]) -> u64 {
        let mut p = Pieces::<C, N>::new(core);
        // SAFETY: a slice is readable, and `Sum` stores nothing.
        unsafe { p.feed::<Sum>(tier(), std::ptr::null_mut(), bytes.as_ptr(), bytes.len()) };
        p.finish(tier())
    }

    /// SMHasher's verification: hashes of 0..=255 bytes counting up, seeded 256 - length, hashed.
    fn verification(hash: impl Fn(u32, &[u8]) -> u32) -> u32 {
        let key: Vec<u8> = (0..=255).collect();
        let mut all = Vec::new();
        for i in 0..256 {
            all.extend(hash(256 - i as u32, &key[..i]).to_le_bytes());
        }
        hash(0, &all)
    }

    #[test]
    fn smhasher_verification_values() {
        let murmur = verification(|seed, b| run::<_, 4>(Murmur2a::new(seed), b) as u32);
        assert_eq!(murmur, 0x7fbd_4396);
        // The original returns 0 for empty data.
        let fast = verification(|seed, b| match b {
            [] => 0,
            _ => run::<_, 4>(SuperFast(seed), b) as u32,
        });
        assert_eq!(fast, 0x0c80_403a);
    }
}
