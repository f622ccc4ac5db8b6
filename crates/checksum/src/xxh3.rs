//! XXH3, 64 bits, with the default secret and a seed, incremental.
//!
//! Up to 240 bytes the formulas differ from those for longer data, and the last 64 bytes are
//! treated specially. So the last 256 bytes are buffered until more follow.

use crate::lanes::xxh3::{P32_1, SCRAMBLE_AT, STRIPE, STRIPES_PER_BLOCK};
use crate::pieces::{each, keep};
use crate::store::{Store, Sum};
use crate::tier::Tier;

const P32_2: u64 = 0x85eb_ca77;
const P32_3: u64 = 0xc2b2_ae3d;
const P64_1: u64 = 0x9e37_79b1_85eb_ca87;
const P64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P64_3: u64 = 0x1656_67b1_9e37_79f9;
const P64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const P64_5: u64 = 0x27d4_eb2f_1656_67c5;
const MIX_1: u64 = 0x1656_6791_9e37_79f9;
const MIX_2: u64 = 0x9fb2_1c65_1e98_df25;

/// Offsets of the secret for the last stripe and for merging the lanes.
const LAST_AT: usize = 121;
const MERGE_AT: usize = 11;
const SHORT_MAX: usize = 240;
const BUFFER: usize = 256;

/// The default secret of the XXH3 specification.
static SECRET: [u8; 192] = {
    let words: [u64; 24] = [
        0xb8fe_6c39_23a4_4bbe,
        0x7c01_812c_f721_ad1c,
        0xded4_6de9_8390_97db,
        0x7240_a4a4_b7b3_671f,
        0xcb79_e64e_ccc0_e578,
        0x825a_d07d_ccff_7221,
        0xb808_4674_f743_248e,
        0xe035_90e6_813a_264c,
        0x3c28_52bb_91c3_00cb,
        0x88d0_658b_1b53_2ea3,
        0x7164_4897_a20d_f94e,
        0x3819_ef46_a9de_acd8,
        0xa8fa_763f_e39c_343f,
        0xf9dc_bbc7_c70b_4f1d,
        0x8a51_e04b_cdb4_5931,
        0xc89f_7ec9_d978_7364,
        0xeac5_ac83_34d3_ebc3,
        0xc581_a0ff_fa13_63eb,
        0x170d_dd51_b7f0_da49,
        0xd316_5526_29d4_689e,
        0x2b16_be58_7d47_a1fc,
        0x8ff8_b8d1_7ad0_31ce,
        0x45cb_3a8f_9516_0428,
        0xafd7_fbca_bb4b_407e,
    ];
    let mut bytes = [0; 192];
    let mut i = 0;
    while i < 192 {
        bytes[i] = words[i / 8].to_be_bytes()[i % 8];
        i += 1;
    }
    bytes
};

#[inline(always)]
fn read32(bytes: &[u8], at: usize) -> u64 {
    let mut w = [0; 4];
    w.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(w) as u64
}

#[inline(always)]
fn read64(bytes: &[u8], at: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(w)
}

#[inline(always)]
fn multiply_fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(mut h: u64) -> u64 {
    h ^= h >> 37;
    h = h.wrapping_mul(MIX_1);
    h ^ h >> 32
}

#[inline(always)]
fn avalanche_xxh64(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(P64_2);
    h ^= h >> 29;
    h = h.wrapping_mul(P64_3);
    h ^ h >> 32
}

/// The eight lanes, and the index of the next stripe in its block.
#[derive(Clone, Copy, Debug)]
struct Core {
    acc: [u64; 8],
    stripe: usize,
}

const START: Core = Core {
    acc: [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1],
    stripe: 0,
};

/// The state of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xxh3 {
    seed: u64,
    total: u64,
    have: usize,
    core: Core,
    buffer: [u8; BUFFER],
}

impl Core {
    /// Adds whole stripes, with a scramble after each sixteenth.
    ///
    /// # Safety
    /// As [`Xxh3::feed`], for `count` stripes.
    #[inline]
    unsafe fn stripes<S: Store>(
        &mut self,
        tier: Tier,
        secret: &[u8; 192],
        dst: *mut u8,
        src: *const u8,
        count: usize,
    ) {
        // SAFETY: the tier implies the features; the rest is the caller's contract.
        unsafe {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                use crate::arch::x86_64::xxh3;
                let (acc, at) = (&mut self.acc, &mut self.stripe);
                match tier {
                    Tier::Avx512 => return xxh3::wide::<S>(acc, at, secret, dst, src, count),
                    Tier::Avx2 | Tier::Vpclmul => {
                        return xxh3::half::<S>(acc, at, secret, dst, src, count)
                    }
                    _ => {}
                }
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
            if tier != Tier::Portable {
                let (acc, at) = (&mut self.acc, &mut self.stripe);
                let stripes = crate::arch::aarch64::xxh3::stripes::<S>;
                return stripes(acc, at, secret, dst, src, count);
            }
            let _ = tier;
            each::<S, STRIPE>(dst, src, count * STRIPE, |stripe| {
                accumulate(&mut self.acc, &stripe, &secret[8 * self.stripe..]);
                self.stripe += 1;
                if self.stripe == STRIPES_PER_BLOCK {
                    scramble(&mut self.acc, secret);
                    self.stripe = 0;
                }
            });
        }
    }

    /// The sum, including the last 64 bytes.
    fn finish(&mut self, secret: &[u8; 192], last: &[u8; STRIPE], total: u64) -> u64 {
        accumulate(&mut self.acc, last, &secret[LAST_AT..]);
        let mut h = total.wrapping_mul(P64_1);
        for i in 0..4 {
            let a = self.acc[2 * i] ^ read64(secret, MERGE_AT + 16 * i);
            let b = self.acc[2 * i + 1] ^ read64(secret, MERGE_AT + 8 + 16 * i);
            h = h.wrapping_add(multiply_fold(a, b));
        }
        avalanche(h)
    }
}

/// The sum in one call, without buffering.
///
/// # Safety
/// As [`Xxh3::feed`].
pub(crate) unsafe fn whole<S: Store>(
    tier: Tier,
    seed: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: parts of the caller's buffers; stored bytes are read back from `dst`, so that sum and
    // copy see the same.
    unsafe {
        let seen = if S::STORE { dst.cast_const() } else { src };
        if len <= SHORT_MAX {
            if S::STORE {
                std::ptr::copy_nonoverlapping(src, dst, len);
            }
            return short(std::slice::from_raw_parts(seen, len), seed);
        }
        let secret = secret_for(seed);
        let mut core = START;
        let count = (len - 1) / STRIPE;
        core.stripes::<S>(tier, &secret, dst, src, count);
        if S::STORE {
            let done = count * STRIPE;
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), len - done);
        }
        let last = seen.add(len - STRIPE).cast::<[u8; STRIPE]>().read();
        core.finish(&secret, &last, len as u64)
    }
}

impl Xxh3 {
    #[inline]
    pub(crate) fn new(seed: u64) -> Xxh3 {
        Xxh3 {
            seed,
            total: 0,
            have: 0,
            core: START,
            buffer: [0; BUFFER],
        }
    }

    /// # Safety
    /// `src` readable for `len` bytes; if `S` stores, `dst` writable for as many, not overlapping;
    /// `tier` not above this CPU's.
    #[inline]
    pub(crate) unsafe fn feed<S: Store>(
        &mut self,
        tier: Tier,
        mut dst: *mut u8,
        mut src: *const u8,
        mut len: usize,
    ) {
        self.total += len as u64;
        // SAFETY: consecutive parts of the caller's buffers.
        unsafe {
            if self.have + len > BUFFER {
                let fill = BUFFER - self.have;
                self.keep::<S>(dst, src, fill);
                (src, len, dst) = (src.add(fill), len - fill, dst.wrapping_add(fill));
                let secret = secret_for(self.seed);
                let buffer = self.buffer;
                self.core
                    .stripes::<Sum>(tier, &secret, std::ptr::null_mut(), buffer.as_ptr(), 4);
                self.have = 0;
                // Whole stripes, leaving at least one byte.
                let n = (len - 1) / STRIPE;
                if n > 0 {
                    self.core.stripes::<S>(tier, &secret, dst, src, n);
                    let done = n * STRIPE;
                    (src, len, dst) = (src.add(done), len - done, dst.wrapping_add(done));
                    // The last stripe may overlap bytes that were already processed.
                    let from = if S::STORE { dst.cast_const() } else { src };
                    let end = self.buffer.as_mut_ptr().add(BUFFER - STRIPE);
                    std::ptr::copy_nonoverlapping(from.sub(STRIPE), end, STRIPE);
                }
            }
            self.keep::<S>(dst, src, len);
        }
    }

    /// [`keep`] into the buffer.
    ///
    /// # Safety
    /// As [`keep`].
    #[inline]
    unsafe fn keep<S: Store>(&mut self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: the caller's contract.
        unsafe { keep::<S>(&mut self.buffer[self.have..], dst, src, n) };
        self.have += n;
    }

    pub(crate) fn finish(&self, tier: Tier) -> u64 {
        if self.total <= SHORT_MAX as u64 {
            return short(&self.buffer[..self.total as usize], self.seed);
        }
        let mut core = self.core;
        let secret = secret_for(self.seed);
        let mut last = [0; STRIPE];
        if self.have >= STRIPE {
            let whole = (self.have - 1) / STRIPE;
            // SAFETY: `whole` stripes lie in the buffer, and `Sum` stores nothing.
            unsafe {
                let from = self.buffer.as_ptr();
                core.stripes::<Sum>(tier, &secret, std::ptr::null_mut(), from, whole);
            }
            last.copy_from_slice(&self.buffer[self.have - STRIPE..self.have]);
        } else {
            let (back, new) = last.split_at_mut(STRIPE - self.have);
            back.copy_from_slice(&self.buffer[BUFFER - back.len()..]);
            new.copy_from_slice(&self.buffer[..self.have]);
        }
        core.finish(&secret, &last, self.total)
    }
}

fn secret_for(seed: u64) -> [u8; 192] {
    let mut out = SECRET;
    for (i, word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let v = u64::from_le_bytes(*word);
        let v = if i % 2 == 0 {
            v.wrapping_add(seed)
        } else {
            v.wrapping_sub(seed)
        };
        *word = v.to_le_bytes();
    }
    out
}

fn accumulate(acc: &mut [u64; 8], stripe: &[u8; STRIPE], secret: &[u8]) {
    for i in 0..8 {
        let value = read64(stripe, 8 * i);
        let key = value ^ read64(secret, 8 * i);
        acc[i ^ 1] = acc[i ^ 1].wrapping_add(value);
        acc[i] = acc[i].wrapping_add((key & 0xffff_ffff).wrapping_mul(key >> 32));
    }
}

fn scramble(acc: &mut [u64; 8], secret: &[u8; 192]) {
    for (i, a) in acc.iter_mut().enumerate() {
        *a = (*a ^ *a >> 47 ^ read64(secret, SCRAMBLE_AT + 8 * i)).wrapping_mul(P32_1);
    }
}

fn mix16(data: &[u8], at: usize, secret_at: usize, seed: u64) -> u64 {
    let a = read64(data, at) ^ read64(&SECRET, secret_at).wrapping_add(seed);
    let b = read64(data, at + 8) ^ read64(&SECRET, secret_at + 8).wrapping_sub(seed);
    multiply_fold(a, b)
}

/// The sum of up to 240 bytes.
fn short(data: &[u8], seed: u64) -> u64 {
    let len = data.len();
    let s = |at| read64(&SECRET, at);
    match len {
        0 => avalanche_xxh64(seed ^ s(56) ^ s(64)),
        1..=3 => {
            let (a, b, c) = (data[0] as u64, data[len / 2] as u64, data[len - 1] as u64);
            let word = a << 16 | b << 24 | c | (len as u64) << 8;
            let flip = (read32(&SECRET, 0) ^ read32(&SECRET, 4)).wrapping_add(seed);
            avalanche_xxh64(word ^ flip)
        }
        4..=8 => {
            let seed = seed ^ ((seed as u32).swap_bytes() as u64) << 32;
            let word = read32(data, len - 4) + (read32(data, 0) << 32);
            let mut h = word ^ (s(8) ^ s(16)).wrapping_sub(seed);
            h ^= h.rotate_left(49) ^ h.rotate_left(24);
            h = h.wrapping_mul(MIX_2);
            h ^= (h >> 35).wrapping_add(len as u64);
            h = h.wrapping_mul(MIX_2);
            h ^ h >> 28
        }
        9..=16 => {
            let low = read64(data, 0) ^ (s(24) ^ s(32)).wrapping_add(seed);
            let high = read64(data, len - 8) ^ (s(40) ^ s(48)).wrapping_sub(seed);
            let h = (len as u64).wrapping_add(low.swap_bytes());
            avalanche(h.wrapping_add(high).wrapping_add(multiply_fold(low, high)))
        }
        17..=128 => {
            let mut h = (len as u64).wrapping_mul(P64_1);
            for i in 0..(len - 1) / 32 + 1 {
                h = h.wrapping_add(mix16(data, 16 * i, 32 * i, seed));
                h = h.wrapping_add(mix16(data, len - 16 * (i + 1), 32 * i + 16, seed));
            }
            avalanche(h)
        }
        _ => {
            let mut h = (len as u64).wrapping_mul(P64_1);
            for i in 0..8 {
                h = h.wrapping_add(mix16(data, 16 * i, 16 * i, seed));
            }
            h = avalanche(h);
            for i in 8..len / 16 {
                h = h.wrapping_add(mix16(data, 16 * i, 16 * (i - 8) + 3, seed));
            }
            avalanche(h.wrapping_add(mix16(data, len - 16, 119, seed)))
        }
    }
}
