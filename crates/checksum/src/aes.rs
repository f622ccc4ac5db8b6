//! A fast class for blocks in cache: one AES round per 16 bytes, over 16 lanes.
//!
//! Lane `i` of 16 takes block `i` of every 256 bytes: `lane = round(lane) ^ block`, where `round`
//! is SubBytes, ShiftRows, MixColumns: what the AESENC instruction does with the block as its key.
//! A last incomplete group is filled with zeros. At the end lanes are joined in pairs the same way
//! (`i` with `i + 8`, then `+ 4`, `+ 2`, `+ 1`), then come the length and three more rounds, and
//! the two halves of what is left are xored.
//!
//! Each step is a bijection of the lane for a fixed block, and of the block for a fixed lane. So
//! an error confined to one aligned block of 16 bytes always changes the last 128 bits; only their
//! squeeze to 64 can hide it (2^-64, heuristic). Errors in several blocks: no guarantee, about
//! 2^-64. This is no cryptographic authentication code: one round can be inverted by an attacker.

use crate::dispatch::{Tier, CLAIM_MIN_BYTES};
use crate::pieces::{each, Core};
use crate::store::{Claimed, Store};

/// Bytes per group: 16 lanes of 16 bytes.
pub(crate) const GROUP: usize = 256;

/// The lanes; aligned for the 512-bit kernel.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Lanes(pub(crate) [[u8; 16]; 16]);

/// The sum in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AesLanes {
    lanes: Lanes,
    len: u64,
}

/// The first 256 bytes of the binary expansion of what SplitMix64 makes of 0, 1, ...: nothing
/// hidden in them, and no two lanes alike.
static START: Lanes = Lanes({
    let mut lanes = [[0; 16]; 16];
    let mut i = 0;
    while i < 32 {
        let bytes = splitmix(i as u64).to_le_bytes();
        let mut j = 0;
        while j < 8 {
            lanes[i / 2][i % 2 * 8 + j] = bytes[j];
            j += 1;
        }
        i += 1;
    }
    lanes
});

const fn splitmix(i: u64) -> u64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Keys of the last rounds; the low half of the first takes the length.
pub(crate) const LAST: [u128; 3] = [
    (splitmix(32) as u128) << 64,
    (splitmix(34) as u128) << 64 | splitmix(33) as u128,
    (splitmix(36) as u128) << 64 | splitmix(35) as u128,
];

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
        // SAFETY: the tier says that the features are there; the rest is the caller's contract.
        unsafe {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                use crate::arch::x86_64::aes;
                match tier {
                    Tier::Avx512 => return aes::wide::<S>(&mut self.lanes, dst, src, len),
                    Tier::Avx2 | Tier::Sse42 => {
                        return aes::narrow::<S>(&mut self.lanes, dst, src, len)
                    }
                    Tier::Portable => {}
                }
            }
            let _ = tier;
            portable::<S>(&mut self.lanes, dst, src, len)
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
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if tier >= Tier::Sse42 {
            // SAFETY: the tier says that the features are there.
            return unsafe { crate::arch::x86_64::aes::join(&sum.lanes, len) };
        }
        join(&sum.lanes, len)
    }
}

/// All in one call, for the highest tier: the lanes never leave their registers.
///
/// # Safety
/// The tier is [`Tier::Avx512`]; otherwise as [`Core::groups`], for any `len`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn whole<S: Store>(seed: u64, dst: *mut u8, src: *const u8, len: usize) -> u64 {
    use crate::arch::x86_64::aes;
    // SAFETY: the caller's contract.
    unsafe {
        if S::STORE && len >= CLAIM_MIN_BYTES {
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

fn join(lanes: &Lanes, len: u64) -> u64 {
    let mut l = lanes.0;
    let mut half = 8;
    while half > 0 {
        for i in 0..half {
            l[i] = round(l[i], l[i + half]);
        }
        half /= 2;
    }
    let mut v = round(l[0], (LAST[0] ^ len as u128).to_le_bytes());
    v = round(v, LAST[1].to_le_bytes());
    v = round(v, LAST[2].to_le_bytes());
    let v = u128::from_le_bytes(v);
    v as u64 ^ (v >> 64) as u64
}

/// Multiplies by x in AES's field.
const fn double(v: u8) -> u8 {
    (v << 1) ^ (0x1b & (v >> 7).wrapping_neg())
}

/// The AES S-box, from its definition: inverse in the field, then an affine map.
static SBOX: [u8; 256] = {
    let mut t = [0; 256];
    // p runs through the powers of the generator 3, q through those of its inverse.
    let (mut p, mut q) = (1u8, 1u8);
    loop {
        p ^= double(p);
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        q ^= 0x09 & (q >> 7).wrapping_neg();
        let v = q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4);
        t[p as usize] = v ^ 0x63;
        if p == 1 {
            break;
        }
    }
    t[0] = 0x63;
    t
};

/// What AESENC does.
fn round(v: [u8; 16], key: [u8; 16]) -> [u8; 16] {
    let mut out = [0; 16];
    for column in 0..4 {
        let s: [u8; 4] = std::array::from_fn(|row| SBOX[v[(column + row) % 4 * 4 + row] as usize]);
        let all = s[0] ^ s[1] ^ s[2] ^ s[3];
        for row in 0..4 {
            let i = column * 4 + row;
            out[i] = s[row] ^ all ^ double(s[row] ^ s[(row + 1) % 4]) ^ key[i];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_is_that_of_fips_197() {
        // FIPS 197, appendix B: start of round 1, its key, start of round 2.
        let start = 0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808u128.to_be_bytes();
        let key = 0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605u128.to_be_bytes();
        let next = 0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049u128.to_be_bytes();
        assert_eq!(round(start, key), next);
    }
}
