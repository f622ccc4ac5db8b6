//! Prefetch hints. Any address is allowed: a hint reads and writes nothing and cannot fault.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches `len` bytes at `at` for writing.
#[inline]
pub fn prefetch_for_write(at: *const u8, len: usize) {
    for offset in (0..len).step_by(LINE) {
        line_for_write(at.wrapping_add(offset));
    }
}

/// Prefetches `len` bytes at `at` for reading.
#[inline]
pub fn prefetch_for_read(at: *const u8, len: usize) {
    for offset in (0..len).step_by(LINE) {
        line_for_read(at.wrapping_add(offset));
    }
}

/// Defines a function that prefetches the line of an address on each architecture.
macro_rules! hint {
    ($(#[$doc:meta])* $vis:vis fn $name:ident, $x86:ident, $arm:literal) => {
        $(#[$doc])*
        #[inline(always)]
        $vis fn $name(at: *const u8) {
            // SAFETY: a prefetch is a hint: it cannot fault, whatever the address.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            unsafe {
                _mm_prefetch::<$x86>(at.cast());
            }
            // SAFETY: as above.
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            unsafe {
                std::arch::asm!(
                    concat!("prfm ", $arm, ", [{}]"),
                    in(reg) at,
                    options(nostack, preserves_flags)
                );
            }
            let _ = at;
        }
    };
}

hint!(fn line_for_write, _MM_HINT_ET0, "pstl1keep");
hint!(
    /// Prefetches the line of `at` into the L2 cache, for reading a little later.
    pub(crate) fn line_nearer,
    _MM_HINT_T1,
    "pldl2keep"
);
hint!(
    /// Prefetches the line of `at` for reading.
    pub(crate) fn line_for_read,
    _MM_HINT_T0,
    "pldl1keep"
);
