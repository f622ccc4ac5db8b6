//! The fast class for blocks in cache: one AES round per 16 bytes over 16 lanes, joined by
//! constants in GF(2^64).
//!
//! Lane `i` of 16 takes block `i` of every 256 bytes: `lane = round(lane) ^ block`, where `round`
//! is SubBytes, ShiftRows, MixColumns (the AESENC instruction with the block as key). An incomplete
//! last group is padded with zeros. Then each 64-bit half of each lane, and the length, is
//! multiplied by a separate constant, and the sum of these 33 products is the result. Bit `j`
//! represents x^j, and the field polynomial is x^64 + x^4 + x^3 + x + 1.
//!
//! Error detection. An error in one block changes its lane to the end, as a round is a bijection;
//! so do two errors in different lanes. A lane loses an error only if a later block of the lane
//! cancels its image after the round: five bytes or more must be wrong, at least one in each of two
//! consecutive groups. Any two different final states of the lanes are distinguished by all but one
//! in 2^64 choices of the constants (the sum of products is a universal hash). Since the constants
//! are fixed, `tests/all/lanes.rs` also enumerates two groups: no two errors of one byte each in
//! the last 512 bytes cancel. For all other errors the probability 2^-64 is heuristic.
//!
//! Joining the lanes by rounds would need three more rounds each for the same guarantee;
//! multiplication uses another execution port than rounds and costs a copy no time.
//!
//! This is not a cryptographic authentication code: an attacker can invert one round.

use crate::arch::narrow;
use crate::lanes::aes::{round, Lanes, GROUP, KEYS, LENGTH_KEY, START};
use crate::pieces::{each, Core};
use crate::store::{Claimed, Store};
use crate::tier::Tier;

/// The state of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AesLanes {
    pub(crate) lanes: Lanes,
    len: u64,
}

impl AesLanes {
    #[inline]
    pub(crate) fn new(seed: u64) -> AesLanes {
        let mut lanes = START;
        for lane in &mut lanes.0 {
            let v = u128::from_le_bytes(*lane) ^ (seed as u128) << 64 ^ seed as u128;
            *lane = v.to_le_bytes();
        }
        AesLanes { lanes, len: 0 }
    }
}

impl Core for AesLanes {
    #[inline]
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        self.len += len as u64;
        // SAFETY: the tier implies the features; the rest is the caller's contract.
        unsafe {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                use crate::arch::x86_64::{aes::wide, vaes::half};
                match tier {
                    Tier::Avx512 => return wide::<S>(&mut self.lanes, dst, src, len),
                    Tier::Vpclmul => return half::<S>(&mut self.lanes, dst, src, len),
                    _ => {}
                }
            }
            match tier {
                Tier::Portable => portable::<S>(&mut self.lanes, dst, src, len),
                _ => narrow::aes_groups::<S>(&mut self.lanes, dst, src, len),
            }
        }
    }

    #[inline]
    fn finish(&self, tier: Tier, tail: &[u8]) -> u64 {
        let mut sum = *self;
        let len = sum.len + tail.len() as u64;
        if !tail.is_empty() {
            let mut group = [0; GROUP];
            group[..tail.len()].copy_from_slice(tail);
            // SAFETY: `group` is one whole group, and `Sum` stores nothing.
            unsafe {
                sum.groups::<crate::store::Sum>(tier, std::ptr::null_mut(), group.as_ptr(), GROUP);
            }
        }
        match tier {
            Tier::Portable => join(&sum.lanes, len),
            // SAFETY: the tier implies the features.
            _ => unsafe { narrow::aes_join(&sum.lanes, len) },
        }
    }
}

/// The sum in one call for the highest tiers; the lanes never leave registers.
///
/// # Safety
/// The tier is [`Tier::Vpclmul`] or [`Tier::Avx512`]; otherwise as [`Core::groups`], for any `len`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn whole<S: Store>(
    tier: Tier,
    seed: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    use crate::arch::x86_64::{aes, vaes};
    use crate::cpu::{claims, CLAIM_MIN_BYTES};
    // SAFETY: the caller's contract.
    unsafe {
        if tier == Tier::Vpclmul {
            return vaes::whole::<S>(&START, seed, dst, src, len);
        }
        if S::STORE && len >= CLAIM_MIN_BYTES && claims() {
            return aes::whole::<Claimed>(&START, seed, dst, src, len);
        }
        aes::whole::<S>(&START, seed, dst, src, len)
    }
}

unsafe fn portable<S: Store>(lanes: &mut Lanes, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        each::<S, GROUP>(dst, src, len, |group| {
            for (lane, block) in lanes.0.iter_mut().zip(group.as_chunks::<16>().0) {
                *lane = round(*lane, *block);
            }
        });
    }
}

/// The sum of products: processes all factors' bits of one weight at a time, the highest first.
fn join(lanes: &Lanes, len: u64) -> u64 {
    let mut halves = [0; 32];
    for (half, bytes) in halves.iter_mut().zip(lanes.0.as_flattened().as_chunks().0) {
        *half = u64::from_le_bytes(*bytes);
    }
    let all = (0..64).rev().fold(0u128, |sum, bit| {
        let of = |v: u64, key: u64| (v >> bit & 1).wrapping_neg() & key;
        let terms = halves
            .iter()
            .zip(&KEYS.0)
            .map(|(half, key)| of(*half, *key));
        sum << 1 ^ u128::from(terms.fold(of(len, LENGTH_KEY), |a, b| a ^ b))
    });
    // Twice, since the first reduction leaves four bits above the 64th.
    reduce(reduce(all)) as u64
}

/// Replaces x^64 by its residue in the field.
fn reduce(v: u128) -> u128 {
    let high = v >> 64;
    u128::from(v as u64) ^ high ^ high << 1 ^ high << 3 ^ high << 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::aes::{double, FIELD};

    #[test]
    fn round_is_that_of_fips_197() {
        // FIPS 197, appendix B: start of round 1, its key, start of round 2.
        let start = 0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808u128.to_be_bytes();
        let key = 0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605u128.to_be_bytes();
        let next = 0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049u128.to_be_bytes();
        assert_eq!(round(start, key), next);
    }

    /// Checks all pairs of one-byte errors in the last two groups, for any data: an error in the
    /// last group adds a fixed term to the sum; an error in the previous group adds one of several,
    /// after a round.
    ///
    /// Safe arithmetic on 130,000 values takes more than 25 minutes under Miri and cannot be
    /// unsound.
    #[cfg_attr(miri, ignore = "only arithmetic, and very much of it")]
    #[test]
    fn no_two_wrong_bytes_of_the_last_groups_cancel() {
        let basis: Vec<[u64; 8]> = (0..GROUP)
            .map(|at| {
                std::array::from_fn(|bit| {
                    let mut lanes = Lanes([[0; 16]; 16]);
                    lanes.0[at / 16][at % 16] = 1 << bit;
                    join(&lanes, 0)
                })
            })
            .collect();
        let adds = |at: usize, by: u8| {
            let bits = (0..8).filter(|bit| by >> bit & 1 == 1);
            bits.fold(0, |sum, bit| sum ^ basis[at][bit])
        };
        let mut changes = Vec::new();
        for (at, by) in (0..GROUP).flat_map(|at| (1..=255).map(move |by| (at, by))) {
            changes.push(adds(at, by));
            let column = [double(by), by, by, double(by) ^ by];
            let row = |i: usize| at / 4 * 4 + (at + i) % 4;
            changes.push((0..4).fold(0, |sum, i| sum ^ adds(row(i), column[i])));
        }
        changes.sort_unstable();
        assert_ne!(changes[0], 0);
        assert!(changes.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn the_field_has_the_order_of_2_to_the_64() {
        // x^(2^64) = x, and x^(2^32) - x has no common factor with the polynomial, so the
        // polynomial is irreducible (Rabin's test: 2 is the only prime that divides 64).
        assert_eq!(FIELD, reduce(1 << 64) as u64);
        let squared = |times: u32| {
            (0..times).fold(2u64, |v, _| {
                let spread = (0..64).fold(0u128, |s, i| s | u128::from(v >> i & 1) << (2 * i));
                reduce(reduce(spread)) as u64
            })
        };
        assert_eq!(squared(64), 2);
        let (mut a, mut b) = (1u128 << 64 | u128::from(FIELD), u128::from(squared(32) ^ 2));
        while b != 0 {
            while a != 0 && a.ilog2() >= b.ilog2() {
                a ^= b << (a.ilog2() - b.ilog2());
            }
            (a, b) = (b, a);
        }
        assert_eq!(a, 1);
    }
}
