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
