//! CRC folding with 512-bit carry-less multiplication: 256 bytes per iteration.
//!
//! One loop serves summing, copying with plain stores and copying with streaming stores, chosen at
//! compile time by [`Store`], so the fused forms load each byte exactly once.

use super::copy::{beside, blocks, take, LINES, PAGE, PAGES};
use crate::arch::fold128::reduce;
use crate::crc::{update_bytes, Poly};
use crate::store::Store;
use std::arch::x86_64::*;

/// Minimum length for which aligning the stores gains more than it costs.
const ALIGN_MIN_BYTES: usize = 1536;

/// `iota[i] = i`: becomes a rotation by adding the distance.
static IOTA: [u8; 64] = {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 64 {
        t[i] = i as u8;
        i += 1;
    }
    t
};

/// Adds `len` bytes at `src` to `state` and stores them at `dst` according to `S`.
///
/// # Safety
/// The CPU has the features named. `src` is readable for `len` bytes; if `S` stores, `dst` is
/// writable for `len` bytes and does not overlap; if `S` streams, `dst` is 64-byte aligned.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,vpclmulqdq,pclmulqdq,sse4.1"
)]
pub(crate) unsafe fn update<P: Poly, S: Store>(
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract; every access below stays within `len` (masked where partial).
    unsafe {
        if len < 64 {
            return short::<P, S>(state, src, dst, len);
        }
        let first = _mm512_zextsi128_si512(_mm_cvtsi64_si128(state as i64));
        let astray = dst as usize % 64;
        let (acc, done) = if S::STORE && !S::STREAM && len >= ALIGN_MIN_BYTES && astray != 0 {
            // One block and the few bytes that align `dst` to a line; then the usual loop.
            let head = 128 - astray;
            let acc = _mm512_xor_si512(first, take::<S>(src, dst, 0));
            let acc = tail::<P, S>(acc, src, dst, head, 64);
            let first = fold(acc, pair(P::FOLD_512), _mm512_setzero_si512());
            let (acc, done) = quads::<P, S>(first, src.add(head), dst.add(head), len - head);
            (acc, head + done)
        } else if len < 256 {
            let acc = _mm512_xor_si512(first, take::<S>(src, dst, 0));
            singles::<P, S>(acc, src, dst, len, 64)
        } else if S::STREAM && len >= 64 + PAGES * PAGE {
            let acc = _mm512_xor_si512(first, take::<S>(src, dst, 0));
            let (acc, head) = pages::<P, S>(acc, src, dst, len);
            singles::<P, S>(acc, src, dst, len, head)
        } else {
            quads::<P, S>(first, src, dst, len)
        };
        let acc = if len == done {
            acc
        } else {
            tail::<P, S>(acc, src, dst, len, done)
        };
        finish::<P>(acc)
    }
}

/// The main loop and its remaining whole blocks: four accumulators, merged at the end.
///
/// 512 bytes per iteration, as the loop-counter instructions compete with the multiplications for a
/// port.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
unsafe fn quads<P: Poly, S: Store>(
    first: __m512i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> (__m512i, usize) {
    // SAFETY: `len` is at least 256 and every block ends at or before it.
    unsafe {
        let k = pair(P::FOLD_2048);
        let mut acc = blocks::<S, 4>(src, dst, 0);
        acc[0] = _mm512_xor_si512(first, acc[0]);
        let mut done = 256;
        while S::CLAIM && len - done >= 1024 {
            acc = fold_all(acc, k, blocks::<S, 16>(src, dst, done));
            done += 1024;
        }
        while len - done >= 512 {
            acc = fold_all(acc, k, blocks::<S, 8>(src, dst, done));
            done += 512;
        }
        if len - done >= 256 {
            acc = fold_all(acc, k, blocks::<S, 4>(src, dst, done));
            done += 256;
        }
        let [mut a, mut b, mut c, mut d] = acc;
        // The four accumulators rotate over the remaining blocks: the folds are independent.
        while len - done >= 64 {
            let next = fold(a, k, take::<S>(src, dst, done));
            (a, b, c, d) = (b, c, d, next);
            done += 64;
        }
        let ab = _mm512_xor_si512(
            fold(a, pair(P::FOLD_1536), d),
            fold(b, pair(P::FOLD_1024), _mm512_setzero_si512()),
        );
        (fold(c, pair(P::FOLD_512), ab), done)
    }
}

/// Whole blocks from `done` on, one at a time.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
unsafe fn singles<P: Poly, S: Store>(
    mut acc: __m512i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
    mut done: usize,
) -> (__m512i, usize) {
    let k = pair(P::FOLD_512);
    while len - done >= 64 {
        // SAFETY: the block ends at or before `len`.
        acc = fold(acc, k, unsafe { take::<S>(src, dst, done) });
        done += 64;
    }
    (acc, done)
}

/// Pages side by side from byte 64 on, after the first block, which is in `acc`: an accumulator per
/// page, merged after the last page.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
unsafe fn pages<P: Poly, S: Store>(
    acc: __m512i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> (__m512i, usize) {
    let k = pair(P::FOLD_512);
    let [one, two, three] = P::FOLD_PAGES.map(|k| pair(k));
    let zero = _mm512_setzero_si512();
    let (mut first, mut done) = (acc, 64);
    while len - done >= PAGES * PAGE {
        let mut acc = [first, zero, zero, zero];
        for at in (done..done + PAGE).step_by(64 * LINES) {
            // SAFETY: the last of the pages ends at or before `len`.
            let lines = unsafe { beside::<S>(src, dst, at) };
            for (acc, lines) in acc.iter_mut().zip(lines) {
                *acc = lines.into_iter().fold(*acc, |acc, line| fold(acc, k, line));
            }
        }
        let [a, b, c, d] = acc;
        first = fold(a, three, fold(b, two, fold(c, one, d)));
        done += PAGES * PAGE;
    }
    (first, done)
}

/// Fewer than 64 bytes.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,vpclmulqdq,pclmulqdq,sse4.1"
)]
unsafe fn short<P: Poly, S: Store>(state: u64, src: *const u8, dst: *mut u8, len: usize) -> u64 {
    // SAFETY: masks keep every access within `len`.
    unsafe {
        let mask = (1u64 << len) - 1;
        let v = _mm512_maskz_loadu_epi8(mask, src.cast());
        if S::STORE {
            _mm512_mask_storeu_epi8(dst.cast(), mask, v);
        }
        if len < 8 {
            // The state is longer than the data. Use the register, since the bytes at `src` may
            // have changed.
            let word = _mm_cvtsi128_si64(_mm512_castsi512_si128(v)) as u64;
            return update_bytes::<P>(state, &word.to_le_bytes()[..len]);
        }
        let state = _mm512_zextsi128_si512(_mm_cvtsi64_si128(state as i64));
        finish::<P>(rotate(_mm512_xor_si512(v, state), len))
    }
}

/// The last 1..=63 bytes: the accumulator is shifted by the tail's length, the tail fills the gap,
/// and the bytes shifted out are folded over one block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,vpclmulqdq")]
unsafe fn tail<P: Poly, S: Store>(
    acc: __m512i,
    src: *const u8,
    dst: *mut u8,
    len: usize,
    done: usize,
) -> __m512i {
    let count = len - done;
    let mask = !0u64 << (64 - count);
    let turned = rotate(acc, count);
    let out = _mm512_maskz_mov_epi8(mask, turned);
    // SAFETY: only the last `count` bytes of the 64 that end at `len` are accessed.
    let rest = unsafe {
        let rest =
            _mm512_mask_loadu_epi8(turned, mask, src.wrapping_add(len).wrapping_sub(64).cast());
        if S::STORE {
            _mm512_mask_storeu_epi8(dst.wrapping_add(len).wrapping_sub(64).cast(), mask, rest);
        }
        rest
    };
    fold(out, pair(P::FOLD_512), rest)
}

/// Rotates the bytes towards the front by `count`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn rotate(v: __m512i, count: usize) -> __m512i {
    // SAFETY: IOTA has 64 bytes.
    let iota = unsafe { _mm512_loadu_si512(IOTA.as_ptr().cast()) };
    _mm512_permutexvar_epi8(_mm512_add_epi8(iota, _mm512_set1_epi8(count as i8)), v)
}

/// Both constants in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(k: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(k[1] as i64, k[0] as i64))
}

/// Advances the lanes of `acc` by the distance of `k` and adds `next`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(acc: __m512i, k: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(acc, k);
    let high = _mm512_clmulepi64_epi128::<0x11>(acc, k);
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

/// Folds blocks into the accumulators in turn.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_all<const N: usize>(
    mut acc: [__m512i; 4],
    k: __m512i,
    blocks: [__m512i; N],
) -> [__m512i; 4] {
    for (i, block) in blocks.into_iter().enumerate() {
        acc[i % 4] = fold(acc[i % 4], k, block);
    }
    acc
}

/// The CRC register of one accumulator.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,vpclmulqdq,pclmulqdq,sse4.1")]
fn finish<P: Poly>(acc: __m512i) -> u64 {
    // SAFETY: FOLD_LANES has 64 bytes.
    let k = unsafe { _mm512_loadu_si512(const { &P::FOLD_LANES }.as_ptr().cast()) };
    let low = _mm512_clmulepi64_epi128::<0x00>(acc, k);
    let high = _mm512_clmulepi64_epi128::<0x11>(acc, k);
    let all = _mm512_xor_si512(low, high);
    let half = _mm256_xor_si256(
        _mm512_castsi512_si256(all),
        _mm512_extracti64x4_epi64::<1>(all),
    );
    let one = _mm_xor_si128(
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    );
    // SAFETY: the features are present.
    unsafe { reduce::<__m128i, P>(one) }
}
