//! CRC folding with 128-bit PCLMULQDQ: 64 bytes per iteration, for CPUs without AVX-512.

use crate::crc::{update_portable, Poly};
use crate::store::Store;
use std::arch::x86_64::*;

/// Rotations and masks by 0..=15 bytes are windows of these.
static TURN: [u8; 32] = {
    let mut t = [0; 32];
    let mut i = 0;
    while i < 32 {
        t[i] = (i % 16) as u8;
        i += 1;
    }
    t
};
static LAST: [u8; 32] = {
    let mut t = [0; 32];
    let mut i = 16;
    while i < 32 {
        t[i] = 0xff;
        i += 1;
    }
    t
};

/// How far ahead of the loads the streaming loop prefetches.
const PREFETCH_BYTES: usize = 1024;

/// Adds `len` bytes at `src` to `state`, and stores them at `dst` as `S` says.
///
/// # Safety
/// The CPU has the features named. `src` is readable for `len` bytes; if `S` stores, `dst` is
/// writable for `len` bytes and does not overlap; if `S` streams, `dst` is 16-byte aligned.
#[target_feature(enable = "pclmulqdq,sse4.1,ssse3")]
pub(crate) unsafe fn update<P: Poly, S: Store>(
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract; every access below ends at or before `len`.
    unsafe {
        if len < 16 {
            let mut bytes = [0u8; 16];
            std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), len);
            if S::STORE {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, len);
            }
            return update_portable::<P>(state, &bytes[..len]);
        }
        let first = _mm_cvtsi64_si128(state as i64);
        let (mut acc, mut done) = if len >= 64 {
            quads::<P, S>(first, src, dst, len)
        } else {
            (_mm_xor_si128(first, take::<S>(src, dst, 0)), 16)
        };
        let k = pair(P::FOLD_128);
        while len - done >= 16 {
            acc = fold(acc, k, take::<S>(src, dst, done));
            done += 16;
        }
        if done < len {
            acc = tail::<P, S>(acc, src, dst, len, len - done);
        }
        let k = pair(P::FOLD_64);
        reduce::<P>(fold(acc, k, _mm_setzero_si128()))
    }
}

/// The main loop: four accumulators, merged at the end.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
unsafe fn quads<P: Poly, S: Store>(
    first: __m128i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> (__m128i, usize) {
    // SAFETY: `len` is at least 64 and every block taken ends at or before it.
    unsafe {
        let k = pair(P::FOLD_512);
        let mut a = _mm_xor_si128(first, take::<S>(src, dst, 0));
        let mut b = take::<S>(src, dst, 16);
        let mut c = take::<S>(src, dst, 32);
        let mut d = take::<S>(src, dst, 48);
        let mut done = 64;
        while len - done >= 64 {
            if S::STREAM {
                _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(done + PREFETCH_BYTES).cast());
            }
            a = fold(a, k, take::<S>(src, dst, done));
            b = fold(b, k, take::<S>(src, dst, done + 16));
            c = fold(c, k, take::<S>(src, dst, done + 32));
            d = fold(d, k, take::<S>(src, dst, done + 48));
            done += 64;
        }
        let ad = fold(a, pair(P::FOLD_384), d);
        let abd = fold(b, pair(P::FOLD_256), ad);
        (fold(c, pair(P::FOLD_128), abd), done)
    }
}

/// The last 1..=15 bytes; at least 16 precede the end.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,ssse3")]
unsafe fn tail<P: Poly, S: Store>(
    acc: __m128i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
    count: usize,
) -> __m128i {
    // SAFETY: windows of 16 inside the 32-byte tables, as `count` is 1..=15; the data's last 16
    // bytes exist. The bytes to store come from the very load that is summed.
    unsafe {
        let turn = _mm_loadu_si128(TURN.as_ptr().add(count).cast());
        let mask = _mm_loadu_si128(LAST.as_ptr().add(count).cast());
        let turned = _mm_shuffle_epi8(acc, turn);
        let end = _mm_loadu_si128(src.add(len - 16).cast());
        if S::STORE {
            let mut bytes = [0u8; 16];
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), end);
            let from = bytes.as_ptr().add(16 - count);
            std::ptr::copy_nonoverlapping(from, dst.add(len - count), count);
        }
        let rest = _mm_blendv_epi8(turned, end, mask);
        fold(_mm_and_si128(turned, mask), pair(P::FOLD_128), rest)
    }
}

#[inline]
#[target_feature(enable = "sse2")]
unsafe fn take<S: Store>(src: *const u8, dst: *mut u8, at: usize) -> __m128i {
    // SAFETY: the callers take only whole blocks inside the buffers; `S` says what `dst` must be.
    unsafe {
        let v = _mm_loadu_si128(src.add(at).cast());
        if S::STREAM {
            _mm_stream_si128(dst.add(at).cast(), v);
        } else if S::STORE {
            _mm_storeu_si128(dst.add(at).cast(), v);
        }
        v
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn pair(k: [u64; 2]) -> __m128i {
    _mm_set_epi64x(k[1] as i64, k[0] as i64)
}

#[inline]
#[target_feature(enable = "pclmulqdq,sse2")]
fn fold(acc: __m128i, k: __m128i, next: __m128i) -> __m128i {
    let low = _mm_clmulepi64_si128::<0x00>(acc, k);
    let high = _mm_clmulepi64_si128::<0x11>(acc, k);
    _mm_xor_si128(_mm_xor_si128(low, high), next)
}

/// Barrett reduction of a 128-bit register, already multiplied by x^64, to the CRC register.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
pub(super) fn reduce<P: Poly>(v: __m128i) -> u64 {
    let k = _mm_set_epi64x(P::POLY_SHIFTED as i64, P::MU_SHIFTED as i64);
    let quotient = _mm_clmulepi64_si128::<0x00>(v, k);
    let product = _mm_clmulepi64_si128::<0x10>(quotient, k);
    let rest = _mm_extract_epi64::<1>(_mm_xor_si128(v, product)) as u64;
    if P::HAS_ONE {
        rest ^ _mm_cvtsi128_si64(quotient) as u64
    } else {
        rest
    }
}
