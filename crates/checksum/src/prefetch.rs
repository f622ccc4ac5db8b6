//! Hints to the cache. Any address will do: nothing is read or written, nothing can fault.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0, _MM_HINT_T0};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches `len` bytes at `at` into the cache, to be written soon.
#[inline]
pub fn prefetch_for_write(at: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..len).step_by(LINE) {
        // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.wrapping_add(offset).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, len);
}

/// Fetches `len` bytes at `at` into the cache, to be read soon.
#[inline]
pub fn prefetch_for_read(at: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..len).step_by(LINE) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(offset).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, len);
}
