//! The kernels of `crate::nh` with 256-bit carry-less multiplication.

use super::vpclmul::{constants, fold};
use crate::arch::nh128::{self, Multiply, BLOCK};
use crate::crc::{Nvme, Poly};
use crate::lanes::nh::{Products, KEYS, LANE};
use crate::prefetch::{line_for_read, line_nearer};
use crate::store::{Store, FAR_BYTES};
use std::arch::x86_64::*;

/// Prefetch distance in bytes of the streaming loop.
const AHEAD_BYTES: usize = 1024;

/// Two lanes per register.
struct Double;

impl Multiply<__m128i> for Double {
    #[inline]
    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
    unsafe fn add<S: Store>(
        sum: __m128i,
        lane: usize,
        dst: *mut u8,
        src: *const u8,
        len: usize,
    ) -> __m128i {
        // SAFETY: accesses end at or before `len`, and each lane has a constant.
        unsafe {
            let keys = KEYS.0.as_ptr().add(2 * lane).cast::<u8>();
            let mut sums = _mm256_zextsi128_si256(sum);
            let mut at = 0;
            while len - at >= 128 {
                for i in 0..4 {
                    sums = pair::<S>(sums, keys, dst, src, at + 32 * i);
                }
                at += 128;
            }
            while len - at >= 32 {
                sums = pair::<S>(sums, keys, dst, src, at);
                at += 32;
            }
            let sum = both(sums);
            match at < len {
                true => nh128::Single::add::<S>(
                    sum,
                    lane + at / LANE,
                    dst.wrapping_add(at),
                    src.add(at),
                    LANE,
                ),
                false => sum,
            }
        }
    }

    /// Advances both lanes of the register and adds them at the end: they have the same weight.
    #[inline]
    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq")]
    unsafe fn blocks<S: Store>(sum: __m128i, dst: *mut u8, src: *const u8, len: usize) -> __m128i {
        let keys = KEYS.0.as_ptr().cast::<u8>();
        let mut sums = _mm256_zextsi128_si256(sum);
        let mut at = 0;
        // SAFETY: blocks end at or before `len`.
        unsafe {
            while at < len {
                let (dst, src) = (dst.wrapping_add(at), src.add(at));
                let mut block = _mm256_setzero_si256();
                for i in 0..BLOCK / 32 {
                    if S::FAR && i % 2 == 0 {
                        line_nearer(src.wrapping_add(32 * i + FAR_BYTES));
                    }
                    if S::STREAM && i % 2 == 0 {
                        line_for_read(src.wrapping_add(32 * i + AHEAD_BYTES));
                    }
                    block = pair::<S>(block, keys, dst, src, 32 * i);
                }
                sums = fold(sums, constants(Nvme::FOLD_8192), block);
                at += BLOCK;
            }
        }
        both(sums)
    }
}

/// The sum of both lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn both(v: __m256i) -> __m128i {
    let (low, high) = (_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    _mm_xor_si128(low, high)
}

/// Adds the products of two lanes.
///
/// # Safety
/// The CPU has the features named; 32 bytes are readable `at` bytes behind `keys` and `src` and, if
/// `S` stores, writable behind `dst`.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
unsafe fn pair<S: Store>(
    sums: __m256i,
    keys: *const u8,
    dst: *mut u8,
    src: *const u8,
    at: usize,
) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let v = _mm256_loadu_si256(src.add(at).cast());
        if S::STREAM {
            // The destination is only aligned to lanes.
            _mm_stream_si128(dst.add(at).cast(), _mm256_castsi256_si128(v));
            _mm_stream_si128(dst.add(at + LANE).cast(), _mm256_extracti128_si256::<1>(v));
        } else if S::STORE {
            _mm256_storeu_si256(dst.add(at).cast(), v);
        }
        let v = _mm256_xor_si256(v, _mm256_loadu_si256(keys.add(at).cast()));
        _mm256_xor_si256(sums, _mm256_clmulepi64_epi128::<0x01>(v, v))
    }
}

/// Adds whole lanes to products.
///
/// # Safety
/// The CPU has the features named; `len` is a multiple of a lane; `src` is readable for `len`
/// bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,ssse3,sse4.2,aes")]
pub(crate) unsafe fn lanes<S: Store>(
    products: &mut Products,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { nh128::lanes::<__m128i, Double, S>(products, dst, src, len) }
}

/// The remainder of all bytes.
///
/// # Safety
/// As [`lanes`], for any `len`.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,ssse3,sse4.2,aes")]
pub(crate) unsafe fn whole<S: Store>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { nh128::whole::<__m128i, Double, S>(dst, src, len) }
}
