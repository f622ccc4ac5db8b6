//! Choices that differ between processors with the same instructions.
//!
//! The choices depend on the maker, according to measurements (docs/design/checksums.md); `marline
//! tune` measures the rest.

use std::sync::atomic::{AtomicU8, Ordering};

/// The processor's maker, where choices depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Maker {
    /// AMD, and Hygon, whose cores are derived from AMD's.
    Amd = 1,
    /// All other makers.
    Other = 2,
}

/// 0 until determined. Racing threads store the same value.
static MAKER: AtomicU8 = AtomicU8::new(0);

#[inline]
fn maker() -> Maker {
    match MAKER.load(Ordering::Relaxed) {
        1 => Maker::Amd,
        2 => Maker::Other,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Maker {
    let maker = ask_cpu();
    MAKER.store(maker as u8, Ordering::Relaxed);
    maker
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask_cpu() -> Maker {
    #[allow(unused_unsafe)] // newer compilers made the intrinsic safe
    // SAFETY: every x86-64 processor has cpuid.
    let id = unsafe { std::arch::x86_64::__cpuid(0) };
    let mut name = [0; 12];
    for (part, word) in name.chunks_mut(4).zip([id.ebx, id.edx, id.ecx]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    match &name {
        b"AuthenticAMD" | b"HygonGenuine" => Maker::Amd,
        _ => Maker::Other,
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ask_cpu() -> Maker {
    Maker::Other
}

/// Returns whether copies larger than L1 prefetch destination lines for writing (`prefetchw`), many
/// lines at a time. Intel's processors gain from it, AMD's lose.
#[inline]
pub(crate) fn claims() -> bool {
    maker() != Maker::Amd
}

/// Copies of at least this length exceed L1 with source and destination. From this length on
/// destination lines are prefetched for writing if [`claims`]; for shorter copies that would only
/// cost time.
pub(crate) const CLAIM_MIN_BYTES: usize = 32 << 10;

/// Copies of at least this length are streamed by [`crate::copy_and_sum`] where streaming kernels
/// exist, unless a [`crate::Plan`] says otherwise.
///
/// From this length on source and destination no longer share the L2 cache of 2 MiB on Intel's
/// processors, or the L3 cache of 32 MiB on AMD's. While they do, streaming is slower.
#[inline]
pub fn stream_min_bytes() -> usize {
    match maker() {
        Maker::Amd => 16 << 20,
        Maker::Other => 2 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_asked_once() {
        let first = maker();
        assert_eq!(MAKER.load(Ordering::Relaxed), first as u8);
        assert_eq!(maker(), first);
        assert_eq!(first, ask_cpu());
    }
}
