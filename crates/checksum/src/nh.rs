//! CRC-64 of products: half the multiplications of the CRC with nearly its error detection.
//!
//! The data is a sequence of 64-bit words `w[0]`, `w[1]`, ..., little endian, padded with zeros to
//! a whole lane of two words. Blocks of 1,024 bytes share 128 constants `k[0]`, ... (numbers of
//! SplitMix64). The product of a lane is `(w[2i] + k[2i]) * (w[2i + 1] + k[2i + 1])`, without
//! carries, and the sum of its products represents a block. The sums of the blocks, each multiplied
//! by x^8192 for every later block, as in the CRC of the data itself, are added modulo the
//! polynomial of CRC-64/NVME; finally mix(seed) is added.
//!
//! The products are those of NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: fast and secure
//! message authentication", CRYPTO 1999) without carries, as in CLNH (Lemire, Kaser: "Faster 64-bit
//! universal hashing using carry-less multiplications", J. Cryptographic Engineering 6, 2016). A
//! CRC folded by multiplication needs two products per 16 bytes, this sum one.
//!
//! Error detection. Let `e` be the error, word by word, and `c[i]` the sum over all blocks of the
//! error of their word `i`, times x^8192 for each later block. The change of the result is the sum
//! of `c[i ^ 1] * k[i]` and of terms that do not depend on the constants. The polynomial is
//! irreducible (even primitive: `examples/detect/zech.rs`), so a product is 0 only if a factor is.
//! So, for data of one length,
//!
//! - if any `c[i]` is not 0, the change is 0 for exactly one in 2^64 of the choices of constants;
//! - the CRC of the error is the sum of `c[i]` times a power of x each, so if all are 0, the CRC
//!   misses the error as well. All errors that CRC-64/NVME detects are detected by all but one in
//!   2^64 choices of constants, and so is every error that affects each column of words only once:
//!   all errors within 1,016 bytes;
//! - two exchanged words of a lane are always detected: the product changes by the words' sum times
//!   the constants'.
//!
//! The constants are fixed, so the probability is over errors and data that are independent of
//! them. A word equal to its constant hides any error of its neighbour, with probability 2^-64: so
//! no error, not even a single flip, is detected with certainty, unlike by the CRC. This is not an
//! authentication code.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::arch::x86_64;
use crate::arch::{narrow, soft};
use crate::lanes::nh::{last, Products};
use crate::pieces::Core;
use crate::store::Store;
use crate::tier::Tier;

/// The state of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc64Nh {
    products: Products,
    start: u64,
}

impl Crc64Nh {
    #[inline]
    pub(crate) fn new(start: u64) -> Crc64Nh {
        let products = Products::default();
        Crc64Nh { products, start }
    }
}

impl Core for Crc64Nh {
    #[inline]
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize) {
        let products = &mut self.products;
        // SAFETY: the tier implies the features; the rest is the caller's contract.
        unsafe {
            match tier {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Tier::Vpclmul => x86_64::vnh::lanes::<S>(products, dst, src, len),
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                Tier::Avx512 => x86_64::nh::lanes::<S>(products, dst, src, len),
                Tier::Portable => soft::nh_lanes::<S>(products, dst, src, len),
                _ => narrow::nh_lanes::<S>(products, dst, src, len),
            }
        }
    }

    #[inline]
    fn finish(&self, tier: Tier, tail: &[u8]) -> u64 {
        // SAFETY: the tier implies the features; a slice is readable, and `Sum` stores nothing.
        let rest = unsafe {
            let words = last::<crate::store::Sum>(std::ptr::null_mut(), tail.as_ptr(), tail.len());
            match tier {
                Tier::Portable => soft::nh_rest(&self.products, words),
                _ => narrow::nh_rest(&self.products, words),
            }
        };
        rest ^ self.start
    }
}

/// The sum in one call; the state never leaves registers.
///
/// # Safety
/// As [`Core::groups`], for any `len`.
#[inline]
pub(crate) unsafe fn whole<S: Store>(
    tier: Tier,
    start: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: the tier implies the features; the rest is the caller's contract.
    let rest = unsafe {
        match tier {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Tier::Vpclmul => x86_64::vnh::whole::<S>(dst, src, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Tier::Avx512 => x86_64::nh::whole::<S>(dst, src, len),
            Tier::Portable => soft::nh_whole::<S>(dst, src, len),
            _ => narrow::nh_whole::<S>(dst, src, len),
        }
    };
    rest ^ start
}
