//! Calls into this CPU's kernels for CRCs and plain copies.

use crate::arch::narrow;
use crate::cpu::{claims, CLAIM_MIN_BYTES};
use crate::crc::{update_portable, Castagnoli, Poly};
use crate::store::{Cached, Claimed, CopyMode, Store, Streaming, Sum};
use crate::tier::{tier, Tier};

/// For shorter data the CRC-32C instruction is faster than 512-bit folding, and its loads of one
/// word each can be forwarded from the store buffer.
const SHORT_BYTES: usize = 256;

/// Adds `len` bytes at `src` to a CRC register and stores them at `dst` according to `S`.
///
/// # Safety
/// `src` readable for `len` bytes; if `S` stores, `dst` writable for `len` bytes, not overlapping.
/// `tier` not above [`tier()`].
#[inline]
pub(crate) unsafe fn crc<P: Poly, S: Store>(
    tier: Tier,
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract; for streaming, the head aligns `dst` to 64 bytes.
    unsafe {
        if S::STORE && !S::STREAM && len >= CLAIM_MIN_BYTES && claims() {
            return crc_any::<P, Claimed>(tier, state, src, dst, len);
        }
        if !S::STREAM {
            return crc_any::<P, S>(tier, state, src, dst, len);
        }
        let head = dst.align_offset(64).min(len);
        let state = crc_any::<P, Cached>(tier, state, src, dst, head);
        crc_any::<P, S>(tier, state, src.add(head), dst.add(head), len - head)
    }
}

/// [`crc`] without aligning the destination.
///
/// # Safety
/// As [`crc`]; if `S` streams, `dst` is 64-byte aligned.
#[inline]
unsafe fn crc_any<P: Poly, S: Store>(
    tier: Tier,
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the tier implies the features; the rest is the caller's contract.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use crate::arch::x86_64::{avx512, vpclmul};
            match tier {
                Tier::Avx512 => return avx512::update::<P, S>(state, src, dst, len),
                Tier::Vpclmul => return vpclmul::update::<P, S>(state, src, dst, len),
                _ => {}
            }
        }
        if tier != Tier::Portable {
            return narrow::crc::<P, S>(state, src, dst, len);
        }
        if !S::STORE {
            return update_portable::<P>(state, std::slice::from_raw_parts(src, len));
        }
        std::ptr::copy_nonoverlapping(src, dst, len);
        update_portable::<P>(state, std::slice::from_raw_parts(dst, len))
    }
}

/// Orders streaming stores before later stores of this thread, such as a doorbell.
#[inline]
pub(crate) fn stream_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies with streaming stores; the caller fences.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping; `tier` not above [`tier()`].
#[inline]
pub(crate) unsafe fn stream(tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.align_offset(64).min(len);
    // SAFETY: the caller's contract in parts; the head aligns `dst` to 64 bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, head);
        let (dst, src, len) = (dst.add(head), src.add(head), len - head);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let done = {
            use crate::arch::x86_64::copy;
            match tier {
                Tier::Avx512 => copy::wide::<Streaming>(dst, src, len),
                _ => copy::stream128(dst, src, len),
            }
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let (done, _) = (0, tier);
        std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), len - done);
    }
}

/// Copies without a sum, by the same loops as the fused kernels: their baseline.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping.
#[inline]
pub unsafe fn plain_copy(dst: *mut u8, src: *const u8, len: usize, mode: CopyMode) {
    let tier = tier();
    // SAFETY: the caller's contract; the tier is this CPU's.
    unsafe {
        if mode == CopyMode::Streaming {
            stream(tier, dst, src, len);
            return stream_fence();
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if tier >= Tier::Avx512 {
            use crate::arch::x86_64::copy::wide;
            match len >= CLAIM_MIN_BYTES && claims() {
                true => wide::<Claimed>(dst, src, len),
                false => wide::<Cached>(dst, src, len),
            };
            return;
        }
        std::ptr::copy_nonoverlapping(src, dst, len);
    }
}

/// The CRC-32C register after `bytes`: by the `crc32` instruction, or from [`SHORT_BYTES`] on by
/// folding where the CPU folds 512 bits.
#[inline]
pub(crate) fn crc32c_update(tier: Tier, state: u32, bytes: &[u8]) -> u32 {
    let instruction = match tier {
        Tier::Portable => false,
        Tier::Avx512 => bytes.len() < SHORT_BYTES,
        Tier::Sse42 | Tier::Avx2 | Tier::Vpclmul | Tier::Neon => true,
    };
    if instruction {
        // SAFETY: `tier` implies the features.
        return unsafe { narrow::crc32c(state, bytes) };
    }
    // SAFETY: a slice is readable, and `Sum` stores nothing.
    unsafe {
        let (src, dst) = (bytes.as_ptr(), std::ptr::null_mut());
        crc::<Castagnoli, Sum>(tier, state as u64, src, dst, bytes.len()) as u32
    }
}

/// [`crc`] for CRC-32C; a sum without a copy uses the faster of two methods.
///
/// # Safety
/// As [`crc`].
#[inline]
pub(crate) unsafe fn crc32c<S: Store>(
    tier: Tier,
    state: u32,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u32 {
    // SAFETY: the caller's contract.
    unsafe {
        if !S::STORE {
            return crc32c_update(tier, state, std::slice::from_raw_parts(src, len));
        }
        crc::<Castagnoli, S>(tier, state as u64, src, dst, len) as u32
    }
}
