//! The kernels that this CPU supports, determined once.

use std::sync::atomic::{AtomicU8, Ordering};

/// A set of CPU features; each tier includes the lower ones of the same architecture. On another
/// architecture a 128-bit or wider tier stands for the widest existing kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tier {
    /// Plain Rust.
    Portable = 1,
    /// SSE 4.2, PCLMULQDQ and AES-NI: 128-bit kernels.
    Sse42 = 2,
    /// AVX2 in addition: 256-bit kernels for algorithms other than CRCs and AES.
    Avx2 = 3,
    /// VPCLMULQDQ and VAES in addition: 256-bit kernels for all algorithms.
    Vpclmul = 4,
    /// AVX-512 (F, BW, DQ, VL, VBMI) in addition: 512-bit kernels.
    Avx512 = 5,
    /// AArch64 with the extensions for AES, PMULL and CRC-32C: 128-bit kernels.
    Neon = 6,
}

/// 0 until determined. Racing threads store the same value.
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
