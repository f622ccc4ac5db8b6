//! The kernels of `crate::nh` with 512-bit carry-less multiplication: four lanes per register.
//!
//! Copies that gain from it align the destination to cache lines first (streaming requires it).
//! Blocks then begin within a register, whose products are split between the ending and the
//! beginning block.

use super::copy::{blocks as lines, take};
use crate::arch::fold128::reduce;
use crate::arch::nh128::{self, Multiply, BLOCK};
use crate::cpu::{claims, CLAIM_MIN_BYTES};
use crate::crc::{Nvme, Poly};
use crate::lanes::nh::{Products, KEYS, LANE};
use crate::store::{Cached, Claimed, Paired, Store};
use std::arch::x86_64::*;

/// Bytes of a register, and of a cache line.
const LINE: usize = 64;
/// Copies of at least this length are aligned if many lines are stored at a time, as for CRCs from
/// a similar length on. If two lines are stored at a time, aligning would only cost time
/// (docs/design/checksums.md).
const ALIGN_MIN_BYTES: usize = 2 * BLOCK;

/// Four lanes per register.
struct Quad;

impl Multiply<__m128i> for Quad {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
    unsafe fn add<S: Store>(
        sum: __m128i,
        lane: usize,
        dst: *mut u8,
        src: *const u8,
        len: usize,
    ) -> __m128i {
        // SAFETY: the caller's contract.
        all(unsafe { open::<S>(_mm512_zextsi128_si512(sum), lane, dst, src, len) })
    }

    /// Advances all four lanes of the register and adds them at the end: they have the same weight.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq")]
    unsafe fn blocks<S: Store>(sum: __m128i, dst: *mut u8, src: *const u8, len: usize) -> __m128i {
        // SAFETY: the caller's contract.
        all(unsafe { closed::<S>(Some(_mm512_zextsi128_si512(sum)), dst, src, len) })
    }
}

/// Adds the products of `len` bytes of a block, beginning with its lane `lane`; zeros pad the last
/// lane.
///
/// # Safety
/// As [`lanes`], for any `len` that the block has.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
unsafe fn open<S: Store>(
    mut sums: __m512i,
    lane: usize,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> __m512i {
    // SAFETY: accesses end at or before `len`; there are constants for each of these lanes and,
    // after the last one, for a further register. The destination is not aligned here, so nothing
    // is streamed.
    unsafe {
        if S::STREAM {
            return open::<Cached>(sums, lane, dst, src, len);
        }
        let keys = KEYS.0.as_ptr().add(2 * lane).cast::<u8>();
        let mut at = 0;
        while len - at >= LINE {
            let v = take::<S>(src, dst, at);
            sums = _mm512_xor_si512(sums, products(v, keys.add(at)));
            at += LINE;
        }
        match at < len {
            true => _mm512_xor_si512(sums, part::<S>(dst, src, at, len - at, keys.add(at))),
            false => sums,
        }
    }
}

/// Adds whole blocks to the earlier ones, if any.
///
/// # Safety
/// As [`lanes`]; `len` is a multiple of a block, and not 0 without earlier blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
unsafe fn closed<S: Store>(
    mut sums: Option<__m512i>,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> __m512i {
    let head = head::<S>(dst, len);
    // The words of a register that belong to the block that ends in the register.
    let ending = !0u8 >> (head / 8);
    let mut open = _mm512_setzero_si512();
    // SAFETY: `head` is within the first block and in whole lanes, as the rest is; every line ends
    // at or before `len`.
    unsafe {
        let keys = KEYS.0.as_ptr().cast::<u8>();
        if head > 0 {
            open = part::<S>(dst, src, 0, head, keys);
        }
        let keys = keys.add(head);
        let mut at = head;
        while len - at >= BLOCK {
            let (most, last) = block::<S>(dst, src, at, keys);
            let whole = _mm512_maskz_mov_epi64(ending, last);
            open = _mm512_ternarylogic_epi64::<0x96>(open, most, whole);
            sums = Some(after(sums, open));
            open = _mm512_maskz_mov_epi64(!ending, last);
            at += BLOCK;
        }
        if head > 0 {
            let lines = BLOCK - LINE;
            for line in (0..lines).step_by(LINE) {
                let v = take::<S>(src, dst, at + line);
                open = _mm512_xor_si512(open, products(v, keys.add(line)));
            }
            let last = part::<S>(dst, src, at + lines, LINE - head, keys.add(lines));
            sums = Some(after(sums, _mm512_xor_si512(open, last)));
        }
    }
    sums.unwrap_or(open)
}

/// Bytes before the first whole line of the destination, if stores shall be aligned and lanes allow
/// it (for streaming they do, by the callers' contract).
#[inline]
fn head<S: Store>(dst: *mut u8, len: usize) -> usize {
    let astray = dst as usize % LINE;
    let wanted = S::STREAM || S::STORE && !S::PAIRS && len >= ALIGN_MIN_BYTES;
    match wanted && astray.is_multiple_of(LANE) {
        true => (LINE - astray) % LINE,
        false => 0,
    }
}

/// The lines of a block: the sum of all products but those of the last line, and those.
///
/// # Safety
/// The CPU has the features named; a block is readable at `src + at` and at `keys` and, if `S`
/// stores, writable at `dst + at`, which is aligned to lines if `S` streams.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn block<S: Store>(
    dst: *mut u8,
    src: *const u8,
    at: usize,
    keys: *const u8,
) -> (__m512i, __m512i) {
    // SAFETY: the caller's contract.
    unsafe {
        if S::CLAIM {
            block_by::<S, 16>(dst, src, at, keys)
        } else if S::PAIRS {
            block_by::<S, 2>(dst, src, at, keys)
        } else {
            block_by::<S, 8>(dst, src, at, keys)
        }
    }
}

/// [`block`], `N` lines at a time.
///
/// # Safety
/// As [`block`]; `N` is even and divides the lines of a block.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn block_by<S: Store, const N: usize>(
    dst: *mut u8,
    src: *const u8,
    at: usize,
    keys: *const u8,
) -> (__m512i, __m512i) {
    let mut sum = _mm512_setzero_si512();
    let mut last = sum;
    for part in (0..BLOCK).step_by(N * LINE) {
        // SAFETY: the caller's contract; the last line ends with the block.
        unsafe {
            let keys = keys.add(part);
            let lines = lines::<S, N>(src, dst, at + part);
            for (i, &[v, w]) in lines.as_chunks::<2>().0.iter().enumerate() {
                let v = products(v, keys.add(2 * LINE * i));
                // Add the products of the register before, so that the last register is excluded.
                sum = _mm512_ternarylogic_epi64::<0x96>(sum, last, v);
                last = products(w, keys.add(2 * LINE * i + LINE));
            }
        }
    }
    (sum, last)
}

/// The products of four lanes.
///
/// # Safety
/// The CPU has the features named, and a line is readable at `keys`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn products(v: __m512i, keys: *const u8) -> __m512i {
    // SAFETY: the caller's contract.
    let v = _mm512_xor_si512(v, unsafe { _mm512_loadu_si512(keys.cast()) });
    _mm512_clmulepi64_epi128::<0x01>(v, v)
}

/// The products of `len` bytes, less than a line; zeros pad the last lane.
///
/// # Safety
/// The CPU has the features named. `len` bytes are readable at `src + at` and, if `S` stores,
/// writable at `dst + at`; a line is readable at `keys`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
unsafe fn part<S: Store>(
    dst: *mut u8,
    src: *const u8,
    at: usize,
    len: usize,
    keys: *const u8,
) -> __m512i {
    let bytes = (1u64 << len) - 1;
    let words = !0u8 >> (8 - 2 * len.div_ceil(LANE));
    // SAFETY: the caller's contract; masked bytes are not touched.
    unsafe {
        let v = _mm512_maskz_loadu_epi8(bytes, src.add(at).cast());
        if S::STORE {
            _mm512_mask_storeu_epi8(dst.wrapping_add(at).cast(), bytes, v);
        }
        let v = _mm512_maskz_xor_epi64(words, v, _mm512_loadu_si512(keys.cast()));
        _mm512_clmulepi64_epi128::<0x01>(v, v)
    }
}

/// Advances each lane of `sums`, if any, by a block and adds `next`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn after(sums: Option<__m512i>, next: __m512i) -> __m512i {
    let Some(sums) = sums else {
        return next;
    };
    let [low, high] = Nvme::FOLD_8192;
    let k = _mm512_broadcast_i32x4(_mm_set_epi64x(high as i64, low as i64));
    let low = _mm512_clmulepi64_epi128::<0x00>(sums, k);
    let high = _mm512_clmulepi64_epi128::<0x11>(sums, k);
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

/// The sum of all lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn all(v: __m512i) -> __m128i {
    let (low, high) = (_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
    let half = _mm256_xor_si256(low, high);
    let (low, high) = (
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    );
    _mm_xor_si128(low, high)
}

/// Calls a function for `S`, or, for a copy with plain stores, for the processor maker's preferred
/// stores at this length.
macro_rules! in_its_way {
    ($S:ident, $len:expr, $function:ident($($argument:expr),*)) => {
        if !$S::STORE || $S::STREAM {
            $function::<$S>($($argument),*)
        } else if !claims() {
            $function::<Paired>($($argument),*)
        } else if $len < CLAIM_MIN_BYTES {
            $function::<$S>($($argument),*)
        } else {
            $function::<Claimed>($($argument),*)
        }
    };
}

/// Adds whole lanes to products.
///
/// # Safety
/// The CPU has the features of [`crate::Tier::Avx512`]; `len` is a multiple of a lane; `src` is
/// readable for `len` bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap;
/// if `S` streams, `dst` is aligned to a lane.
#[inline]
pub(crate) unsafe fn lanes<S: Store>(
    products: &mut Products,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { in_its_way!(S, len, lanes_by(products, dst, src, len)) }
}

/// The remainder of all bytes.
///
/// # Safety
/// As [`lanes`], for any `len`.
#[inline]
pub(crate) unsafe fn whole<S: Store>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { in_its_way!(S, len, whole_by(dst, src, len)) }
}

/// [`lanes`] for one kind of stores.
///
/// # Safety
/// As [`lanes`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq,ssse3,sse4.2,aes")]
unsafe fn lanes_by<S: Store>(products: &mut Products, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { nh128::lanes::<__m128i, Quad, S>(products, dst, src, len) }
}

/// [`whole`] for one kind of stores; the state never leaves registers.
///
/// # Safety
/// As [`lanes`], for any `len`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,pclmulqdq,ssse3,sse4.2,aes")]
unsafe fn whole_by<S: Store>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    let rest = len % BLOCK;
    let done = len - rest;
    // SAFETY: the caller's contract, in two parts.
    unsafe {
        let blocks = (done > 0).then(|| closed::<S>(None, dst, src, done));
        let sums = match blocks {
            Some(blocks) if rest == 0 => blocks,
            _ => {
                let (dst, src) = (dst.wrapping_add(done), src.add(done));
                let zero = _mm512_setzero_si512();
                after(blocks, open::<S>(zero, 0, dst, src, rest))
            }
        };
        reduce::<__m128i, Nvme>(all(sums))
    }
}

#[cfg(test)]
#[path = "nh_test.rs"]
mod test;
