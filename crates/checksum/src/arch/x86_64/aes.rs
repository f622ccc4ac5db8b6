//! The kernels of `crate::aes`: 512-bit VAES and 128-bit AES-NI.

use super::copy::blocks;
use crate::aes::{Lanes, GROUP, LAST};
use crate::store::Store;
use std::arch::x86_64::*;

/// Adds whole groups, four registers of four lanes.
///
/// # Safety
/// The CPU has the features named; `len` is a multiple of [`GROUP`]; `src` is readable for `len`
/// bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
#[target_feature(enable = "avx512f,vaes")]
pub(crate) unsafe fn wide<S: Store>(lanes: &mut Lanes, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `Lanes` is 256 bytes, aligned to 64; blocks end at or before `len`.
    unsafe {
        let at = lanes.0.as_mut_ptr().cast::<__m512i>();
        let mut v: [__m512i; 4] = [*at, *at.add(1), *at.add(2), *at.add(3)];
        let mut done = 0;
        while len - done >= GROUP {
            v = round_all(v, blocks::<S, 4>(src, dst, done));
            done += GROUP;
        }
        for (i, v) in v.iter().enumerate() {
            *at.add(i) = *v;
        }
    }
}

/// The same with one lane per register.
///
/// # Safety
/// As [`wide`].
#[target_feature(enable = "aes,sse4.1")]
pub(crate) unsafe fn narrow<S: Store>(lanes: &mut Lanes, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `Lanes` is 256 bytes, aligned to 64; blocks end at or before `len`.
    unsafe {
        let at = lanes.0.as_mut_ptr().cast::<__m128i>();
        let mut v: [__m128i; 16] = std::array::from_fn(|i| *at.add(i));
        let mut done = 0;
        while done + GROUP <= len {
            for (i, v) in v.iter_mut().enumerate() {
                let block = _mm_loadu_si128(src.add(done + 16 * i).cast());
                if S::STORE {
                    _mm_storeu_si128(dst.add(done + 16 * i).cast(), block);
                }
                *v = _mm_aesenc_si128(*v, block);
            }
            done += GROUP;
        }
        for (i, v) in v.iter().enumerate() {
            *at.add(i) = *v;
        }
    }
}

/// Joins the lanes, adds the length and squeezes.
///
/// # Safety
/// The CPU has the features named.
#[target_feature(enable = "aes,sse4.1")]
pub(crate) unsafe fn join(lanes: &Lanes, len: u64) -> u64 {
    // SAFETY: `Lanes` is 16 registers of 128 bits, aligned to 64.
    let mut v: [__m128i; 16] =
        std::array::from_fn(|i| unsafe { *lanes.0.as_ptr().cast::<__m128i>().add(i) });
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            v[i] = _mm_aesenc_si128(v[i], v[i + half]);
        }
    }
    squeeze(v[0], len)
}

/// Start to end without a state in memory: whole groups, the padded last one, the joining.
///
/// # Safety
/// As [`wide`], for any `len`; and AVX-512BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,aes,sse4.1")]
pub(crate) unsafe fn whole<S: Store>(
    start: &Lanes,
    seed: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: `Lanes` is 256 bytes, aligned to 64; blocks end at or before `len`, or are masked.
    unsafe {
        let at = start.0.as_ptr().cast::<__m512i>();
        let seed = _mm512_set1_epi64(seed as i64);
        let mut acc: [__m512i; 4] = std::array::from_fn(|i| _mm512_xor_si512(*at.add(i), seed));
        let mut done = 0;
        while S::CLAIM && len - done >= 4 * GROUP {
            acc = round_all(acc, blocks::<S, 16>(src, dst, done));
            done += 4 * GROUP;
        }
        while len - done >= 2 * GROUP {
            acc = round_all(acc, blocks::<S, 8>(src, dst, done));
            done += 2 * GROUP;
        }
        if len - done >= GROUP {
            acc = round_all(acc, blocks::<S, 4>(src, dst, done));
            done += GROUP;
        }
        let [mut a, mut b, mut c, mut d] = acc;
        if done < len {
            let mask = |at: usize| match len.saturating_sub(at) {
                n @ 0..=63 => (1u64 << n) - 1,
                _ => !0,
            };
            a = _mm512_aesenc_epi128(a, part::<S>(dst, src, done, mask(done)));
            b = _mm512_aesenc_epi128(b, part::<S>(dst, src, done + 64, mask(done + 64)));
            c = _mm512_aesenc_epi128(c, part::<S>(dst, src, done + 128, mask(done + 128)));
            d = _mm512_aesenc_epi128(d, part::<S>(dst, src, done + 192, mask(done + 192)));
        }
        let ac = _mm512_aesenc_epi128(a, c);
        let all = _mm512_aesenc_epi128(ac, _mm512_aesenc_epi128(b, d));
        let (low, high) = (
            _mm512_castsi512_si256(all),
            _mm512_extracti64x4_epi64::<1>(all),
        );
        let half = _mm256_aesenc_epi128(low, high);
        let v = _mm_aesenc_si128(
            _mm256_castsi256_si128(half),
            _mm256_extracti128_si256::<1>(half),
        );
        squeeze(v, len as u64)
    }
}

/// Adds blocks to the accumulators in turn.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn round_all<const N: usize>(mut acc: [__m512i; 4], blocks: [__m512i; N]) -> [__m512i; 4] {
    for (i, block) in blocks.into_iter().enumerate() {
        acc[i % 4] = _mm512_aesenc_epi128(acc[i % 4], block);
    }
    acc
}

/// A block, or the part of it that `mask` says with zeros for the rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn part<S: Store>(dst: *mut u8, src: *const u8, at: usize, mask: u64) -> __m512i {
    let (src, dst) = (src.wrapping_add(at), dst.wrapping_add(at));
    // SAFETY: the callers' masks leave only bytes inside the buffers.
    unsafe {
        if mask == !0 {
            let v = _mm512_loadu_si512(src.cast());
            if S::STORE {
                _mm512_storeu_si512(dst.cast(), v);
            }
            return v;
        }
        let v = _mm512_maskz_loadu_epi8(mask, src.cast());
        if S::STORE {
            _mm512_mask_storeu_epi8(dst.cast(), mask, v);
        }
        v
    }
}

/// The last three rounds, and 128 bits to 64.
#[inline]
#[target_feature(enable = "aes,sse4.1")]
fn squeeze(mut v: __m128i, len: u64) -> u64 {
    for key in [LAST[0] ^ len as u128, LAST[1], LAST[2]] {
        let key = _mm_set_epi64x((key >> 64) as i64, key as i64);
        v = _mm_aesenc_si128(v, key);
    }
    (_mm_cvtsi128_si64(v) ^ _mm_extract_epi64::<1>(v)) as u64
}
