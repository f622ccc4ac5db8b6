//! Copies with streaming (non-temporal) stores.

use std::arch::x86_64::*;

/// How far ahead of the loads to prefetch; the same distance as the fused loops.
const PREFETCH_BYTES: usize = 1024;

/// Copies whole 256-byte blocks with 512-bit streaming stores; returns the bytes done.
///
/// # Safety
/// The CPU has AVX-512F. `src` readable and `dst` writable for `len` bytes, not overlapping;
/// `dst` is 64-byte aligned.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn stream512(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let mut done = 0;
    while len - done >= 256 {
        // SAFETY: the block ends at or before `len`; a prefetch cannot fault.
        unsafe {
            for line in 0..4 {
                let at = done + 64 * line;
                _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(at + PREFETCH_BYTES).cast());
            }
            for line in 0..4 {
                let at = done + 64 * line;
                let v = _mm512_loadu_si512(src.add(at).cast());
                _mm512_stream_si512(dst.add(at).cast(), v);
            }
        }
        done += 256;
    }
    done
}

/// The same with 64-byte blocks and what every x86-64 has.
///
/// # Safety
/// As [`stream512`], but for the CPU.
pub(crate) unsafe fn stream128(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let mut done = 0;
    while len - done >= 64 {
        // SAFETY: the block ends at or before `len`; a prefetch cannot fault.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(done + PREFETCH_BYTES).cast());
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

/// Copies with 512-bit plain stores.
///
/// # Safety
/// The CPU has AVX-512F and BW. `src` readable and `dst` writable for `len` bytes, not
/// overlapping.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn cached512(dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    // SAFETY: blocks end at or before `len`; the mask keeps the last access inside.
    unsafe {
        while len - done >= 256 {
            let (from, to) = (src.add(done), dst.add(done));
            let a = _mm512_loadu_si512(from.cast());
            let b = _mm512_loadu_si512(from.add(64).cast());
            let c = _mm512_loadu_si512(from.add(128).cast());
            let d = _mm512_loadu_si512(from.add(192).cast());
            _mm512_storeu_si512(to.cast(), a);
            _mm512_storeu_si512(to.add(64).cast(), b);
            _mm512_storeu_si512(to.add(128).cast(), c);
            _mm512_storeu_si512(to.add(192).cast(), d);
            done += 256;
        }
        while len - done >= 64 {
            let v = _mm512_loadu_si512(src.add(done).cast());
            _mm512_storeu_si512(dst.add(done).cast(), v);
            done += 64;
        }
        let mask = (1u64 << (len - done)) - 1;
        let v = _mm512_maskz_loadu_epi8(mask, src.add(done).cast());
        _mm512_mask_storeu_epi8(dst.add(done).cast(), mask, v);
    }
}
