//! What is better on some processors and worse on others that have the same instructions.
//!
//! By maker, as it was measured (docs/checksums.md); `marline tune` measures the rest.

use std::sync::atomic::{AtomicU8, Ordering};

/// Who made the processor, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Maker {
    /// AMD, and Hygon, whose cores are AMD's.
    Amd = 1,
    /// Anybody else.
    Other = 2,
}

/// 0 until the CPU has been asked. Racing threads store the same value.
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

/// Whether copies that do not fit L1 claim lines of the destination ahead of their stores
/// (`prefetchw`), many lines at a time. Intel's gain 2 to 8 % by it (model 207). AMD's lose a sixth
/// of what they have without, two lines at a time (family 26).
#[inline]
pub(crate) fn claims() -> bool {
    maker() != Maker::Amd
}

/// From here on source and destination no longer share L1, and lines of the destination are claimed
/// ahead of the stores where [`claims`] says so. There (model 207) that costs 10 % below it, gains
/// 2 to 8 % from 32 KiB to 512 KiB and 30 % at 1 MiB.
pub(crate) const CLAIM_MIN_BYTES: usize = 32 << 10;

/// From here on [`crate::copy_and_sum`] streams what has loops for it unless a [`crate::Plan`] says
/// otherwise.
///
/// Intel's (model 207): source and destination no longer share an L2 of 2 MiB. At 2 MiB streaming
/// is 1.3 times as fast, from memory 1.5 times and more; at 1 MiB it is slower. AMD's (families 25
/// and 26): they no longer share an L3 of 32 MiB. A copy of 4 MiB that both are in is streamed at
/// 0.67 and 0.75 of the rate of plain stores.
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
