//! The stripes of `crate::xxh3` with AVX-512 and AVX2.

use crate::lanes::xxh3::{P32_1, SCRAMBLE_AT, STRIPE, STRIPES_PER_BLOCK};
use crate::store::Store;
use std::arch::x86_64::*;

/// Adds `count` stripes; `stripe` is the first one's index in its block.
///
/// # Safety
/// The CPU has the features named. `src` is readable for `count` stripes; if `S` stores, `dst` is
/// writable for as many and does not overlap. `stripe` is below 16.
#[target_feature(enable = "avx512f,avx512dq")]
pub(crate) unsafe fn wide<S: Store>(
    acc: &mut [u64; 8],
    stripe: &mut usize,
    secret: &[u8; 192],
    dst: *mut u8,
    src: *const u8,
    count: usize,
) {
    // SAFETY: stripes end at or before `count * STRIPE`; the secret is read up to byte
    // 8 * 15 + 64 = 184 and from SCRAMBLE_AT on for 64 bytes, of 192.
    unsafe {
        let mut v = _mm512_loadu_si512(acc.as_ptr().cast());
        // A local copy: through the reference it would be stored and reloaded for each stripe.
        let mut at = *stripe;
        let mut done = 0;
        while done < count {
            let run = (STRIPES_PER_BLOCK - at).min(count - done);
            // Two independent chains of additions.
            let mut swapped = _mm512_setzero_si512();
            for i in 0..run {
                let offset = (done + i) * STRIPE;
                let value = _mm512_loadu_si512(src.add(offset).cast());
                if S::STORE {
                    _mm512_storeu_si512(dst.add(offset).cast(), value);
                }
                let secret_now = _mm512_loadu_si512(secret.as_ptr().add(8 * (at + i)).cast());
                let key = _mm512_xor_si512(value, secret_now);
                let product = _mm512_mul_epu32(key, _mm512_srli_epi64::<32>(key));
                swapped = _mm512_add_epi64(swapped, _mm512_shuffle_epi32::<0x4e>(value));
                v = _mm512_add_epi64(v, product);
            }
            v = _mm512_add_epi64(v, swapped);
            done += run;
            at += run;
            if at == STRIPES_PER_BLOCK {
                let key = _mm512_loadu_si512(secret.as_ptr().add(SCRAMBLE_AT).cast());
                v = _mm512_ternarylogic_epi64::<0x96>(v, _mm512_srli_epi64::<47>(v), key);
                v = _mm512_mullo_epi64(v, _mm512_set1_epi64(P32_1 as i64));
                at = 0;
            }
        }
        *stripe = at;
        _mm512_storeu_si512(acc.as_mut_ptr().cast(), v);
    }
}

/// Like [`wide`], with two registers of 256 bits.
///
/// # Safety
/// As [`wide`].
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn half<S: Store>(
    acc: &mut [u64; 8],
    stripe: &mut usize,
    secret: &[u8; 192],
    dst: *mut u8,
    src: *const u8,
    count: usize,
) {
    // SAFETY: as in `wide`, in halves.
    unsafe {
        let p = acc.as_mut_ptr().cast::<__m256i>();
        let mut v = [_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))];
        // A local copy: through the reference it would be stored and reloaded for each stripe.
        let mut at = *stripe;
        for i in 0..count {
            for (part, v) in v.iter_mut().enumerate() {
                let offset = i * STRIPE + 32 * part;
                let value = _mm256_loadu_si256(src.add(offset).cast());
                if S::STORE {
                    _mm256_storeu_si256(dst.add(offset).cast(), value);
                }
                let secret_at = secret.as_ptr().add(8 * at + 32 * part);
                let key = _mm256_xor_si256(value, _mm256_loadu_si256(secret_at.cast()));
                let product = _mm256_mul_epu32(key, _mm256_srli_epi64::<32>(key));
                *v = _mm256_add_epi64(*v, _mm256_shuffle_epi32::<0x4e>(value));
                *v = _mm256_add_epi64(*v, product);
            }
            at += 1;
            if at == STRIPES_PER_BLOCK {
                for (part, v) in v.iter_mut().enumerate() {
                    let secret_at = secret.as_ptr().add(SCRAMBLE_AT + 32 * part);
                    *v = scramble(*v, _mm256_loadu_si256(secret_at.cast()));
                }
                at = 0;
            }
        }
        *stripe = at;
        _mm256_storeu_si256(p, v[0]);
        _mm256_storeu_si256(p.add(1), v[1]);
    }
}

/// 64-bit by 32-bit multiplication in two halves, as AVX2 has no 64-bit one.
#[inline]
#[target_feature(enable = "avx2")]
fn scramble(v: __m256i, key: __m256i) -> __m256i {
    let prime = _mm256_set1_epi64x(P32_1 as i64);
    let v = _mm256_xor_si256(_mm256_xor_si256(v, _mm256_srli_epi64::<47>(v)), key);
    let low = _mm256_mul_epu32(v, prime);
    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(v), prime);
    _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high))
}
