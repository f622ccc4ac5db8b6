//! The stripes of `crate::xxh3` with NEON.

use crate::lanes::xxh3::{P32_1, SCRAMBLE_AT, STRIPE, STRIPES_PER_BLOCK};
use crate::store::Store;
use std::arch::aarch64::*;

/// Adds `count` stripes; `stripe` is the first one's index in its block.
///
/// # Safety
/// The CPU has NEON. `src` is readable for `count` stripes; if `S` stores, `dst` is writable for
/// as many and does not overlap. `stripe` is below 16.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn stripes<S: Store>(
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
        let p = acc.as_mut_ptr();
        let mut v = [vdupq_n_u64(0); 4];
        for (part, v) in v.iter_mut().enumerate() {
            *v = vld1q_u64(p.add(2 * part));
        }
        // A local copy: through the reference it would be stored and reloaded for each stripe.
        let mut at = *stripe;
        for i in 0..count {
            for (part, v) in v.iter_mut().enumerate() {
                let offset = i * STRIPE + 16 * part;
                let bytes = vld1q_u8(src.add(offset));
                if S::STORE {
                    vst1q_u8(dst.add(offset), bytes);
                }
                let value = vreinterpretq_u64_u8(bytes);
                let key = veorq_u64(value, key_at(secret, 8 * at + 16 * part));
                *v = vaddq_u64(*v, vextq_u64::<1>(value, value));
                *v = vmlal_u32(*v, vmovn_u64(key), vshrn_n_u64::<32>(key));
            }
            at += 1;
            if at == STRIPES_PER_BLOCK {
                for (part, v) in v.iter_mut().enumerate() {
                    *v = scramble(*v, key_at(secret, SCRAMBLE_AT + 16 * part));
                }
                at = 0;
            }
        }
        *stripe = at;
        for (part, v) in v.into_iter().enumerate() {
            vst1q_u64(p.add(2 * part), v);
        }
    }
}

/// 16 bytes of the secret.
///
/// # Safety
/// `at` is at most 176.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn key_at(secret: &[u8; 192], at: usize) -> uint64x2_t {
    // SAFETY: the caller's contract.
    unsafe { vreinterpretq_u64_u8(vld1q_u8(secret.as_ptr().add(at))) }
}

/// 64-bit by 32-bit multiplication in two halves, as NEON has no 64-bit one.
#[inline]
#[target_feature(enable = "neon")]
fn scramble(v: uint64x2_t, key: uint64x2_t) -> uint64x2_t {
    let prime = vdup_n_u32(P32_1 as u32);
    let v = veorq_u64(veorq_u64(v, vshrq_n_u64::<47>(v)), key);
    let high = vmull_u32(vshrn_n_u64::<32>(v), prime);
    vmlal_u32(vshlq_n_u64::<32>(high), vmovn_u64(v), prime)
}
