//! The kernels of `crate::aes`: 512-bit VAES and 128-bit AES-NI.

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
        while done + GROUP <= len {
            for (i, v) in v.iter_mut().enumerate() {
                let block = _mm512_loadu_si512(src.add(done + 64 * i).cast());
                if S::STORE {
                    _mm512_storeu_si512(dst.add(done + 64 * i).cast(), block);
                }
                *v = _mm512_aesenc_epi128(*v, block);
            }
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
    let mut v = v[0];
    for key in [LAST[0] ^ len as u128, LAST[1], LAST[2]] {
        let key = _mm_set_epi64x((key >> 64) as i64, key as i64);
        v = _mm_aesenc_si128(v, key);
    }
    (_mm_cvtsi128_si64(v) ^ _mm_extract_epi64::<1>(v)) as u64
}
