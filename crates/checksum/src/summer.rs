//! Sums that are fed piece by piece.

use crate::crc::{Castagnoli, Nvme, Poly};
use crate::dispatch::{self, Tier};
use crate::store::{Cached, Store, Sum};
use crate::Algorithm;

/// A sum that is fed piece by piece (iovecs; the converter of paper 3).
#[derive(Clone, Copy, Debug)]
pub struct Summer {
    tier: Tier,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    None,
    Crc64(u64),
    Crc32c(u32),
}

/// Spreads a seed over all bits. A bijection, and 0 stays 0, which keeps published values.
///
/// A CRC is linear: without this a seed off by d would be made up for by data off by d.
#[inline]
pub(crate) fn mix(seed: u64) -> u64 {
    // Two odd constants from the golden ratio and from SplitMix64.
    let v = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (v ^ (v >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// [`mix`] for a 32-bit state.
#[inline]
pub(crate) fn mix32(seed: u64) -> u32 {
    (mix(seed) >> 32) as u32
}

impl Summer {
    /// Starts a sum.
    #[inline]
    pub fn new(algorithm: Algorithm, seed: u64) -> Summer {
        let state = match algorithm {
            Algorithm::None => State::None,
            Algorithm::Crc64Nvme => State::Crc64(Nvme::ONES ^ mix(seed)),
            Algorithm::Crc32c => State::Crc32c(!mix32(seed)),
        };
        Summer {
            tier: dispatch::tier(),
            state,
        }
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        // SAFETY: a slice is readable, and `Sum` stores nothing.
        unsafe { self.feed::<Sum>(std::ptr::null_mut(), bytes.as_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes from `src` to `dst` and adds them.
    ///
    /// # Safety
    /// `src` readable and `dst` writable for `len` bytes, not overlapping.
    #[inline]
    pub unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { self.feed::<Cached>(dst, src, len) }
    }

    /// # Safety
    /// `src` readable for `len` bytes; if `S` stores, `dst` writable for as many, not overlapping.
    #[inline]
    unsafe fn feed<S: Store>(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        let tier = self.tier;
        // SAFETY: the caller's contract; the tier is this CPU's.
        unsafe {
            match &mut self.state {
                State::None if S::STORE => std::ptr::copy_nonoverlapping(src, dst, len),
                State::None => {}
                State::Crc64(s) => *s = dispatch::crc::<Nvme, S>(tier, *s, src, dst, len),
                State::Crc32c(s) => {
                    let wide = *s as u64;
                    *s = dispatch::crc::<Castagnoli, S>(tier, wide, src, dst, len) as u32;
                }
            }
        }
    }

    /// The sum (0 for [`Algorithm::None`]).
    #[inline]
    pub fn finish(self) -> u64 {
        match self.state {
            State::None => 0,
            State::Crc64(s) => s ^ Nvme::ONES,
            State::Crc32c(s) => !s as u64,
        }
    }
}
