//! The 128-bit kernels for one vector type, as functions with its CPU features.

/// The 128-bit kernels for one implementation of [`Vector`], compiled with its features.
macro_rules! kernels {
    ($vector:ty $(, $features:literal)?) => {
        /// Adds `len` bytes at `src` to a CRC register and stores them at `dst` according to `S`.
        ///
        /// # Safety
        /// The CPU has the features named. `src` is readable for `len` bytes; if `S` stores, `dst`
        /// is writable for `len` bytes and does not overlap; if `S` streams, it is 16-byte aligned.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn crc<P: crate::crc::Poly, S: crate::store::Store>(
            state: u64,
            src: *const u8,
            dst: *mut u8,
            len: usize,
        ) -> u64 {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::fold128::update::<$vector, P, S>(state, src, dst, len) }
        }

        /// Adds bytes to a CRC-32C register by the CRC-32C instruction.
        ///
        /// # Safety
        /// The CPU has the features named.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn crc32c(state: u32, bytes: &[u8]) -> u32 {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::crc32c::update::<$vector>(state, bytes) }
        }

        /// Adds whole lanes to products.
        ///
        /// # Safety
        /// The CPU has the features named; `len` is a multiple of a lane; `src` is readable for
        /// `len` bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn nh_lanes<S: crate::store::Store>(
            products: &mut crate::lanes::nh::Products,
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) {
            use crate::arch::nh128::{lanes, Single};
            // SAFETY: the caller's contract.
            unsafe { lanes::<$vector, Single, S>(products, dst, src, len) }
        }

        /// The remainder of products after the words of an incomplete lane, if any.
        ///
        /// # Safety
        /// The CPU has the features named.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn nh_rest(
            products: &crate::lanes::nh::Products,
            words: Option<[u64; 2]>,
        ) -> u64 {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::nh128::rest::<$vector>(products, words) }
        }

        /// The remainder of products of all bytes.
        ///
        /// # Safety
        /// As [`nh_lanes`], for any `len`.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn nh_whole<S: crate::store::Store>(
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) -> u64 {
            use crate::arch::nh128::{whole, Single};
            // SAFETY: the caller's contract.
            unsafe { whole::<$vector, Single, S>(dst, src, len) }
        }

        /// Adds whole groups to AES lanes.
        ///
        /// # Safety
        /// The CPU has the features named; `len` is a multiple of a group; `src` is readable for
        /// `len` bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn aes_groups<S: crate::store::Store>(
            lanes: &mut crate::lanes::aes::Lanes,
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::aes128::groups::<$vector, S>(lanes, dst, src, len) }
        }

        /// The sum of AES lanes and a length.
        ///
        /// # Safety
        /// The CPU has the features named.
        $(#[target_feature(enable = $features)])?
        pub(crate) unsafe fn aes_join(lanes: &crate::lanes::aes::Lanes, len: u64) -> u64 {
            // SAFETY: the caller's contract.
            unsafe { crate::arch::aes128::join::<$vector>(lanes, len) }
        }
    };
}
pub(crate) use kernels;
