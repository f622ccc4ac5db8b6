//! Which kernels this CPU can run, found once, and the calls into them.

use crate::arch::narrow;
use crate::cpu::claims;
use crate::crc::{update_portable, Castagnoli, Poly};
use crate::store::{Cached, Claimed, Store, Streaming, Sum};
use crate::CopyMode;
use std::sync::atomic::{AtomicU8, Ordering};

/// A set of instruction sets; each tier includes the ones below of the same architecture. What
/// another architecture calls its kernels of 128 bits or more stands for those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tier {
    /// Plain Rust.
    Portable = 1,
    /// SSE 4.2, PCLMULQDQ and AES-NI: 128-bit kernels.
    Sse42 = 2,
    /// AVX2 besides: 256-bit kernels for what is neither a CRC nor AES.
    Avx2 = 3,
    /// VPCLMULQDQ and VAES besides: 256-bit kernels for everything.
    Vpclmul = 4,
    /// AVX-512 (F, BW, DQ, VL, VBMI) besides: 512-bit kernels.
    Avx512 = 5,
    /// AArch64 with the extensions for AES, PMULL and CRC-32C: 128-bit kernels.
    Neon = 6,
}

/// From here on source and destination no longer share L1, and lines of the destination are claimed
/// ahead of the stores where [`claims`] says so. There (model 207) that costs 10 % below it, gains
/// 2 to 8 % from 32 KiB to 512 KiB and 30 % at 1 MiB.
pub(crate) const CLAIM_MIN_BYTES: usize = 32 << 10;

/// Below this the CRC-32C instruction is quicker than folding with 512 bits, and its loads of a
/// word each can take what was just stored from the store buffer.
const SHORT_BYTES: usize = 256;

/// 0 until the CPU has been asked. Racing threads store the same value.
static TIER: AtomicU8 = AtomicU8::new(0);

/// The highest tier of this CPU.
#[inline]
pub fn tier() -> Tier {
    match TIER.load(Ordering::Relaxed) {
        1 => Tier::Portable,
        2 => Tier::Sse42,
        3 => Tier::Avx2,
        4 => Tier::Vpclmul,
        5 => Tier::Avx512,
        6 => Tier::Neon,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Tier {
    let tier = ask_cpu();
    TIER.store(tier as u8, Ordering::Relaxed);
    tier
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask_cpu() -> Tier {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("sse4.2") && has!("ssse3") && has!("pclmulqdq") && has!("aes")) {
        return Tier::Portable;
    }
    if !has!("avx2") {
        return Tier::Sse42;
    }
    if !(has!("vpclmulqdq") && has!("vaes")) {
        return Tier::Avx2;
    }
    let avx512 = has!("avx512f")
        && has!("avx512bw")
        && has!("avx512dq")
        && has!("avx512vl")
        && has!("avx512vbmi");
    if avx512 {
        Tier::Avx512
    } else {
        Tier::Vpclmul
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
fn ask_cpu() -> Tier {
    use std::arch::is_aarch64_feature_detected as has;
    match has!("neon") && has!("aes") && has!("pmull") && has!("crc") {
        true => Tier::Neon,
        false => Tier::Portable,
    }
}

#[cfg(any(
    miri,
    not(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))
))]
fn ask_cpu() -> Tier {
    Tier::Portable
}

/// Adds `len` bytes at `src` to a CRC register, storing them at `dst` as `S` says.
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
    // SAFETY: the caller's contract, passed on; for streaming, the head brings `dst` to 64 bytes.
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

/// [`crc`] without the care for alignment.
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
    // SAFETY: the tier says that the features are there; the rest is the caller's contract.
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

/// Orders streamed stores before what this thread stores next, such as a doorbell.
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
    // SAFETY: the caller's contract in parts; the head brings `dst` to 64 bytes.
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

/// Copies without a sum, by the loops that the fused kernels have: what they are measured against.
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

/// CRC-32C register after `bytes`, for short data first of all. 512-bit folding wins at every
/// length (48 bytes: 7 against 10 ns, 300 bytes: 10 against 17); below it the `crc32` instruction.
#[inline]
pub(crate) fn crc32c_update(tier: Tier, state: u32, bytes: &[u8]) -> u32 {
    let instruction = match tier {
        Tier::Portable => false,
        Tier::Avx512 => bytes.len() < SHORT_BYTES,
        Tier::Sse42 | Tier::Avx2 | Tier::Vpclmul | Tier::Neon => true,
    };
    if instruction {
        // SAFETY: `tier` says that the features are there.
        return unsafe { narrow::crc32c(state, bytes) };
    }
    // SAFETY: a slice is readable, and `Sum` stores nothing.
    unsafe {
        let (src, dst) = (bytes.as_ptr(), std::ptr::null_mut());
        crc::<Castagnoli, Sum>(tier, state as u64, src, dst, bytes.len()) as u32
    }
}

/// [`crc`] for CRC-32C; what is only summed takes the better of two ways.
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
