//! The kernels of `crate::aes` with 512-bit VAES.

use super::copy::blocks;
use crate::arch::aes128::{length, reduce};
use crate::lanes::aes::{Lanes, GROUP, KEYS};
use crate::store::Store;
use std::arch::x86_64::*;

/// Adds whole groups, in four registers of four lanes.
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

/// The sum without a state in memory: whole groups, the padded last one, the joining.
///
/// # Safety
/// As [`wide`], for any `len`; and the other features named.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,pclmulqdq,sse4.1")]
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
        join_wide([a, b, c, d], len as u64)
    }
}

/// The sum of all halves of lanes, and of the length, each times its constant.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.1")]
fn join_wide(acc: [__m512i; 4], len: u64) -> u64 {
    let products: [__m512i; 4] = std::array::from_fn(|i| {
        // SAFETY: `Keys` is four registers of 512 bits, aligned to 64.
        let k = unsafe { *KEYS.0.as_ptr().cast::<__m512i>().add(i) };
        let low = _mm512_clmulepi64_epi128::<0x00>(acc[i], k);
        _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x11>(acc[i], k))
    });
    let [a, b, c, d] = products;
    let all = _mm512_xor_si512(_mm512_ternarylogic_epi64::<0x96>(a, b, c), d);
    let half = _mm256_xor_si256(
        _mm512_castsi512_si256(all),
        _mm512_extracti64x4_epi64::<1>(all),
    );
    let (low, high) = (
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    );
    // SAFETY: the features are present.
    unsafe { reduce(_mm_ternarylogic_epi64::<0x96>(low, high, length(len))) }
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

/// A block, or the part selected by `mask`, padded with zeros.
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
