//! Loads and stores of the 512-bit kernels, and copies without a sum.

use crate::store::Store;
use std::arch::asm;
use std::arch::x86_64::*;

/// Prefetch distance in bytes: of the source when streaming, and of destination lines to be
/// written.
const AHEAD_BYTES: usize = 1024;

/// Bytes of a page; streaming copies process [`PAGES`] side by side.
pub(super) const PAGE: usize = 4096;
/// Pages that a streaming copy processes side by side, since DRAM serves several rows in parallel
/// faster than one row. (glibc's memcpy does the same from three quarters of the last-level cache
/// on.)
pub(super) const PAGES: usize = 4;

/// Copies the same [`LINES`] of each of [`PAGES`] pages from `at` on, and prefetches those of the
/// next pages. Returns the loaded lines, by page.
///
/// All loads come first, as in [`blocks`]: the pages' lines have the same low 12 address bits, and
/// if the destination has them too, each page's loads would wait for the previous page's stores.
///
/// # Safety
/// As [`blocks`] for each page.
#[inline(always)]
pub(super) unsafe fn beside<S: Store>(
    src: *const u8,
    dst: *mut u8,
    at: usize,
) -> [[__m512i; LINES]; PAGES] {
    let lines = |page: usize| std::array::from_fn(|line| at + page * PAGE + 64 * line);
    let places: [[usize; LINES]; PAGES] = std::array::from_fn(lines);
    // SAFETY: the caller's contract; a prefetch cannot fault.
    unsafe {
        for at in places.as_flattened() {
            _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(at + PAGES * PAGE).cast());
        }
        let v = places.map(|page| page.map(|at| _mm512_loadu_si512(src.add(at).cast())));
        for (at, v) in places.as_flattened().iter().zip(v.as_flattened()) {
            put::<S>(dst.wrapping_add(*at), *v);
        }
        v
    }
}

/// Blocks of 64 bytes that [`beside`] processes of each page at a time.
pub(super) const LINES: usize = 4;

/// Loads `N` blocks of 64 bytes, then stores them according to `S`.
///
/// All loads come first: a load waits for an earlier store to an address with the same low 12 bits
/// (4K aliasing), which happens if the destination is shortly after the source modulo a page.
///
/// # Safety
/// The CPU has AVX-512F. The blocks are readable at `src + at` and, if `S` stores, writable at
/// `dst + at`; if `S` streams, `dst + at` is 64-byte aligned.
#[inline(always)]
pub(super) unsafe fn blocks<S: Store, const N: usize>(
    src: *const u8,
    dst: *mut u8,
    at: usize,
) -> [__m512i; N] {
    // SAFETY: the caller's contract; a prefetch cannot fault.
    unsafe {
        for line in 0..N {
            let ahead = at + AHEAD_BYTES + 64 * line;
            if S::STREAM {
                _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(ahead).cast());
            }
        }
        let v = std::array::from_fn(|i| _mm512_loadu_si512(src.add(at + 64 * i).cast()));
        for (i, &v) in v.iter().enumerate() {
            let dst = dst.wrapping_add(at + 64 * i);
            put::<S>(dst, v);
            if S::CLAIM {
                let to = dst.wrapping_add(AHEAD_BYTES);
                asm!("prefetchw [{}]", in(reg) to, options(nostack, preserves_flags));
            }
        }
        v
    }
}

/// A block without prefetching.
///
/// # Safety
/// As [`blocks`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn take<S: Store>(src: *const u8, dst: *mut u8, at: usize) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let v = _mm512_loadu_si512(src.add(at).cast());
        put::<S>(dst.wrapping_add(at), v);
        v
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put<S: Store>(dst: *mut u8, v: __m512i) {
    // SAFETY: the callers' contract.
    unsafe {
        if S::STREAM {
            _mm512_stream_si512(dst.cast(), v);
        } else if S::STORE {
            _mm512_storeu_si512(dst.cast(), v);
        }
    }
}

/// Copies with 512-bit stores according to `S`: whole blocks, and with plain stores the rest as
/// well; returns the number of bytes copied.
///
/// # Safety
/// The CPU has AVX-512F and BW. `src` readable and `dst` writable for `len` bytes, not
/// overlapping; if `S` streams, `dst` is 64-byte aligned.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn wide<S: Store>(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let mut done = 0;
    // SAFETY: blocks end at or before `len`; the mask keeps the last access inside.
    unsafe {
        while S::STREAM && len - done >= PAGES * PAGE {
            for at in (done..done + PAGE).step_by(64 * LINES) {
                beside::<S>(src, dst, at);
            }
            done += PAGES * PAGE;
        }
        while S::CLAIM && len - done >= 1024 {
            blocks::<S, 16>(src, dst, done);
            done += 1024;
        }
        while len - done >= 512 {
            blocks::<S, 8>(src, dst, done);
            done += 512;
        }
        while len - done >= 64 {
            take::<S>(src, dst, done);
            done += 64;
        }
        if S::STREAM {
            return done;
        }
        let mask = (1u64 << (len - done)) - 1;
        let v = _mm512_maskz_loadu_epi8(mask, src.wrapping_add(done).cast());
        _mm512_mask_storeu_epi8(dst.wrapping_add(done).cast(), mask, v);
    }
    len
}

/// Copies whole 64-byte blocks with the streaming stores of every x86-64 processor; returns the
/// number of bytes copied.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping; `dst` is 64-byte aligned.
pub(crate) unsafe fn stream128(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let mut done = 0;
    while len - done >= 64 {
        // SAFETY: the block ends at or before `len`; a prefetch cannot fault.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(done + AHEAD_BYTES).cast());
            for part in 0..4 {
                let at = done + 16 * part;
                let v = _mm_loadu_si128(src.add(at).cast());
                _mm_stream_si128(dst.add(at).cast(), v);
            }
        }
        done += 64;
    }
    done
}
