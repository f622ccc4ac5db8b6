//! The 128-bit kernels with SSE 4.2, PCLMULQDQ and AES-NI.

use crate::arch::kernels::kernels;
use crate::arch::vector::Vector;
use std::arch::x86_64::*;

// Each function enables only the features that it uses. Some are called by the 512-bit kernels,
// which do not enable the others, and a function is never inlined into a caller with fewer
// features.
impl Vector for __m128i {
    // A product has a latency of four to seven cycles, and one can start per cycle: four keep the
    // port busy.
    const EIGHT: bool = false;

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn load(from: *const u8) -> __m128i {
        // SAFETY: the caller's contract.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { _mm_stream_si128(to.cast(), self) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn of([low, high]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(high as i64, low as i64)
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    unsafe fn halves(self) -> [u64; 2] {
        let (low, high) = (_mm_cvtsi128_si64(self), _mm_extract_epi64::<1>(self));
        [low as u64, high as u64]
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    unsafe fn xor(self, other: __m128i) -> __m128i {
        _mm_xor_si128(self, other)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    unsafe fn multiply_low(self, by: __m128i) -> __m128i {
        _mm_clmulepi64_si128::<0x00>(self, by)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    unsafe fn multiply_high(self, by: __m128i) -> __m128i {
        _mm_clmulepi64_si128::<0x11>(self, by)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    unsafe fn multiply_halves(self) -> __m128i {
        _mm_clmulepi64_si128::<0x01>(self, self)
    }

    #[inline]
    #[target_feature(enable = "aes")]
    unsafe fn round(self, key: __m128i) -> __m128i {
        _mm_aesenc_si128(self, key)
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn pick(self, indices: __m128i) -> __m128i {
        _mm_shuffle_epi8(self, indices)
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    unsafe fn replace(self, other: __m128i, mask: __m128i) -> __m128i {
        _mm_blendv_epi8(self, other, mask)
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn crc32c_word(state: u32, word: u64) -> u32 {
        _mm_crc32_u64(state.into(), word) as u32
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn crc32c_half(state: u32, half: u32) -> u32 {
        _mm_crc32_u32(state, half)
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn crc32c_byte(state: u32, byte: u8) -> u32 {
        _mm_crc32_u8(state, byte)
    }
}

kernels!(__m128i, "sse4.2,ssse3,pclmulqdq,aes");
