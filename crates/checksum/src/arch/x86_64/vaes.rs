//! The kernels of `crate::aes` with 256-bit VAES.

use crate::arch::aes128::{length, reduce};
use crate::lanes::aes::{Lanes, GROUP, KEYS};
use crate::store::Store;
use std::arch::x86_64::*;

/// Two lanes per register.
type Registers = [__m256i; 8];

/// Adds whole groups.
///
/// # Safety
/// The CPU has the features named; `len` is a multiple of [`GROUP`]; `src` is readable for `len`
/// bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
#[target_feature(enable = "avx2,vaes")]
pub(crate) unsafe fn half<S: Store>(lanes: &mut Lanes, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `Lanes` is 256 bytes, aligned to 64; the rest is the caller's contract.
    unsafe {
        let at = lanes.0.as_mut_ptr().cast::<Registers>();
        *at = groups::<S>(*at, dst, src, len);
    }
}

/// Sums a whole payload with its lanes in registers, to the joined result.
///
/// # Safety
/// As [`half`], for any `len`; and the other features named.
#[target_feature(enable = "avx2,vaes,vpclmulqdq,pclmulqdq,sse4.1")]
pub(crate) unsafe fn whole<S: Store>(
    start: &Lanes,
    seed: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: `Lanes` is 256 bytes, aligned to 64; the rest of the data is shorter than `last`.
    unsafe {
        let seed = _mm256_set1_epi64x(seed as i64);
        let mut acc = *start.0.as_ptr().cast::<Registers>();
        for v in &mut acc {
            *v = _mm256_xor_si256(*v, seed);
        }
        let count = len % GROUP;
        let done = len - count;
        acc = groups::<S>(acc, dst, src, done);
        if count > 0 {
            let mut last = [0u8; GROUP];
            std::ptr::copy_nonoverlapping(src.add(done), last.as_mut_ptr(), count);
            if S::STORE {
                std::ptr::copy_nonoverlapping(last.as_ptr(), dst.add(done), count);
            }
            let nowhere = std::ptr::null_mut();
            acc = groups::<crate::store::Sum>(acc, nowhere, last.as_ptr(), GROUP);
        }
        join(acc, len as u64)
    }
}

/// The accumulators after whole groups.
///
/// # Safety
/// As [`half`].
#[inline]
#[target_feature(enable = "avx2,vaes")]
unsafe fn groups<S: Store>(
    mut acc: Registers,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> Registers {
    let mut done = 0;
    while len - done >= GROUP {
        for (i, acc) in acc.iter_mut().enumerate() {
            let at = done + 32 * i;
            // SAFETY: the group ends at or before `len`.
            let block = unsafe {
                let block = _mm256_loadu_si256(src.add(at).cast());
                if S::STORE {
                    _mm256_storeu_si256(dst.add(at).cast(), block);
                }
                block
            };
            *acc = _mm256_aesenc_epi128(*acc, block);
        }
        done += GROUP;
    }
    acc
}

/// The sum of all halves of lanes, and of the length, each times its constant.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.1")]
fn join(acc: Registers, len: u64) -> u64 {
    let mut all = _mm256_setzero_si256();
    for (i, &v) in acc.iter().enumerate() {
        // SAFETY: `Keys` is eight registers of 256 bits, aligned to 64.
        let k = unsafe { *KEYS.0.as_ptr().cast::<__m256i>().add(i) };
        let low = _mm256_clmulepi64_epi128::<0x00>(v, k);
        let high = _mm256_clmulepi64_epi128::<0x11>(v, k);
        all = _mm256_xor_si256(all, _mm256_xor_si256(low, high));
    }
    let (low, high) = (
        _mm256_castsi256_si128(all),
        _mm256_extracti128_si256::<1>(all),
    );
    // SAFETY: the features are present.
    unsafe { reduce(_mm_xor_si128(_mm_xor_si128(low, high), length(len))) }
}
