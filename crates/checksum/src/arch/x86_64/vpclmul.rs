//! CRC folding with 256-bit carry-less multiplication: 128 or 256 bytes per iteration. For
//! processors with VPCLMULQDQ that lack AVX-512, or whose hypervisor hides it: AMD's Zen 3, Intel's
//! from Alder Lake on.

use crate::arch::fold128;
use crate::crc::Poly;
use crate::prefetch::line_nearer;
use crate::store::{Store, FAR_BYTES};
use std::arch::x86_64::*;

/// For shorter data, merging four accumulators of two lanes costs more than they gain.
const WIDE_MIN_BYTES: usize = 256;

/// Prefetch distance in bytes of the streaming loop.
const AHEAD_BYTES: usize = 1024;

/// Adds `len` bytes at `src` to `state` and stores them at `dst` according to `S`.
///
/// # Safety
/// The CPU has the features named. `src` is readable for `len` bytes; if `S` stores, `dst` is
/// writable for `len` bytes and does not overlap; if `S` streams, `dst` is 32-byte aligned.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,ssse3,sse4.2,aes")]
pub(crate) unsafe fn update<P: Poly, S: Store>(
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract; every access below ends at or before `len`.
    unsafe {
        if len < WIDE_MIN_BYTES {
            return fold128::update::<__m128i, P, S>(state, src, dst, len);
        }
        let first = _mm256_zextsi128_si256(_mm_cvtsi64_si128(state as i64));
        let (acc, done) = quads::<P, S>(first, src, dst, len);
        let (low, high) = (
            _mm256_castsi256_si128(acc),
            _mm256_extracti128_si256::<1>(acc),
        );
        let k = _mm_set_epi64x(P::FOLD_128[1] as i64, P::FOLD_128[0] as i64);
        let one = fold128::fold(low, k, high);
        fold128::rest::<__m128i, P, S>(one, src, dst, len, done)
    }
}

/// The main loop and its remaining whole blocks: four accumulators, merged at the end.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
unsafe fn quads<P: Poly, S: Store>(
    first: __m256i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> (__m256i, usize) {
    // SAFETY: `len` is at least 128 and every block ends at or before it.
    unsafe {
        let k = constants(P::FOLD_1024);
        let mut acc = blocks::<S, 4>(src, dst, 0);
        acc[0] = _mm256_xor_si256(first, acc[0]);
        let mut done = 128;
        while len - done >= 256 {
            acc = fold_all(acc, k, blocks::<S, 8>(src, dst, done));
            done += 256;
        }
        if len - done >= 128 {
            acc = fold_all(acc, k, blocks::<S, 4>(src, dst, done));
            done += 128;
        }
        let [mut a, mut b, mut c, mut d] = acc;
        // The four accumulators rotate over the remaining blocks: the folds are independent.
        while len - done >= 32 {
            let [block] = blocks::<S, 1>(src, dst, done);
            (a, b, c, d) = (b, c, d, fold(a, k, block));
            done += 32;
        }
        let ad = fold(a, constants(P::FOLD_768), d);
        let abd = fold(b, constants(P::FOLD_512), ad);
        (fold(c, constants(P::FOLD_256), abd), done)
    }
}

/// Loads `N` blocks of 32 bytes, then stores them according to `S`. (Loads first: see the 512-bit
/// kernels.)
///
/// # Safety
/// The CPU has AVX2. The blocks are readable at `src + at` and, if `S` stores, writable at
/// `dst + at`; if `S` streams, `dst + at` is 32-byte aligned.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn blocks<S: Store, const N: usize>(
    src: *const u8,
    dst: *mut u8,
    at: usize,
) -> [__m256i; N] {
    // SAFETY: the caller's contract; a prefetch cannot fault.
    unsafe {
        let mut v = [_mm256_setzero_si256(); N];
        for (i, v) in v.iter_mut().enumerate() {
            if S::STREAM && i % 2 == 0 {
                let ahead = src.wrapping_add(at + 32 * i + AHEAD_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            }
            if S::FAR && i % 2 == 0 {
                line_nearer(src.wrapping_add(at + 32 * i + FAR_BYTES));
            }
            *v = _mm256_loadu_si256(src.add(at + 32 * i).cast());
        }
        for (i, &v) in v.iter().enumerate() {
            let dst = dst.wrapping_add(at + 32 * i);
            if S::STREAM {
                _mm256_stream_si256(dst.cast(), v);
            } else if S::STORE {
                _mm256_storeu_si256(dst.cast(), v);
            }
        }
        v
    }
}

/// Both constants in every lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn constants(k: [u64; 2]) -> __m256i {
    _mm256_broadcastsi128_si256(_mm_set_epi64x(k[1] as i64, k[0] as i64))
}

/// Advances the lanes of `acc` by the distance of `k` and adds `next`.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
pub(super) fn fold(acc: __m256i, k: __m256i, next: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128::<0x00>(acc, k);
    let high = _mm256_clmulepi64_epi128::<0x11>(acc, k);
    _mm256_xor_si256(_mm256_xor_si256(low, high), next)
}

/// Folds blocks into the accumulators in turn.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_all<const N: usize>(
    mut acc: [__m256i; 4],
    k: __m256i,
    blocks: [__m256i; N],
) -> [__m256i; 4] {
    for (i, block) in blocks.into_iter().enumerate() {
        acc[i % 4] = fold(acc[i % 4], k, block);
    }
    acc
}
