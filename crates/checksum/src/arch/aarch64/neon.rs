//! The 128-bit kernels with NEON and the extensions for AES, PMULL and CRC-32C.

use crate::arch::kernels::kernels;
use crate::arch::vector::Vector;
use std::arch::aarch64::*;

impl Vector for uint8x16_t {
    // 32 registers, and up to four products start per cycle.
    const EIGHT: bool = true;

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: the caller's contract.
        unsafe { vld1q_u8(from) }
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { vst1q_u8(to, self) }
    }

    /// Stores normally: STNP is only a hint for pairs, which few processors honour.
    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { self.store(to) }
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn of([low, high]: [u64; 2]) -> uint8x16_t {
        vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn halves(self) -> [u64; 2] {
        let v = vreinterpretq_u64_u8(self);
        [vgetq_lane_u64::<0>(v), vgetq_lane_u64::<1>(v)]
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn xor(self, other: uint8x16_t) -> uint8x16_t {
        veorq_u8(self, other)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn multiply_low(self, by: uint8x16_t) -> uint8x16_t {
        let (a, b) = (vreinterpretq_p64_u8(self), vreinterpretq_p64_u8(by));
        let product = vmull_p64(vgetq_lane_p64::<0>(a), vgetq_lane_p64::<0>(b));
        vreinterpretq_u8_p128(product)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn multiply_high(self, by: uint8x16_t) -> uint8x16_t {
        let (a, b) = (vreinterpretq_p64_u8(self), vreinterpretq_p64_u8(by));
        vreinterpretq_u8_p128(vmull_high_p64(a, b))
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn multiply_halves(self) -> uint8x16_t {
        let v = vreinterpretq_p64_u8(self);
        let product = vmull_p64(vgetq_lane_p64::<0>(v), vgetq_lane_p64::<1>(v));
        vreinterpretq_u8_p128(product)
    }

    /// AESE adds its key first, so it gets zero, and the key is added last.
    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn round(self, key: uint8x16_t) -> uint8x16_t {
        veorq_u8(vaesmcq_u8(vaeseq_u8(self, vdupq_n_u8(0))), key)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn pick(self, indices: uint8x16_t) -> uint8x16_t {
        vqtbl1q_u8(self, indices)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn replace(self, other: uint8x16_t, mask: uint8x16_t) -> uint8x16_t {
        vbslq_u8(mask, other, self)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn crc32c_word(state: u32, word: u64) -> u32 {
        __crc32cd(state, word)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn crc32c_half(state: u32, half: u32) -> u32 {
        __crc32cw(state, half)
    }

    #[inline]
    #[target_feature(enable = "neon,aes,crc")]
    unsafe fn crc32c_byte(state: u32, byte: u8) -> u32 {
        __crc32cb(state, byte)
    }
}

kernels!(uint8x16_t, "neon,aes,crc");
