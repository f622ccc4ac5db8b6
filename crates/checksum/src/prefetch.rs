//! Hints to the cache. Any address will do: nothing is read or written, nothing can fault.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0, _MM_HINT_T0};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches `len` bytes at `at` into the cache, to be written soon.
#[inline]
pub fn prefetch_for_write(at: *const u8, len: usize) {
    for offset in (0..len).step_by(LINE) {
        line_for_write(at.wrapping_add(offset));
    }
}

/// Fetches `len` bytes at `at` into the cache, to be read soon.
#[inline]
pub fn prefetch_for_read(at: *const u8, len: usize) {
    for offset in (0..len).step_by(LINE) {
        line_for_read(at.wrapping_add(offset));
    }
}

#[inline(always)]
fn line_for_write(at: *const u8) {
    // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    let _ = at;
}

/// Fetches the line with `at` into the cache, to be read soon.
#[inline(always)]
pub(crate) fn line_for_read(at: *const u8) {
    // SAFETY: as above.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    let _ = at;
}
