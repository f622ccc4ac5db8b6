//! Feeds pieces of any size to an algorithm that works on groups of bytes.

use crate::store::{Store, Sum};
use crate::tier::Tier;

/// An algorithm that processes groups of a fixed number of bytes.
pub(crate) trait Core: Copy {
    /// Adds `len` bytes, a multiple of the group, and stores them if `S` stores.
    ///
    /// # Safety
    /// `src` readable for `len` bytes; if `S` stores, `dst` writable for as many, not overlapping.
    /// `tier` is not above this CPU's.
    unsafe fn groups<S: Store>(&mut self, tier: Tier, dst: *mut u8, src: *const u8, len: usize);

    /// The sum, including an incomplete last group.
    fn finish(&self, tier: Tier, tail: &[u8]) -> u64;
}

/// A [`Core`] with groups of `N` bytes, and an incomplete group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<C, const N: usize> {
    core: C,
    have: usize,
    carry: [u8; N],
}

impl<C: Core, const N: usize> Pieces<C, N> {
    #[inline]
    pub(crate) fn new(core: C) -> Self {
        Pieces {
            core,
            have: 0,
            carry: [0; N],
        }
    }

    /// # Safety
    /// As [`Core::groups`], for any `len`.
    #[inline]
    pub(crate) unsafe fn feed<S: Store>(
        &mut self,
        tier: Tier,
        mut dst: *mut u8,
        mut src: *const u8,
        mut len: usize,
    ) {
        // SAFETY: consecutive parts of the caller's buffers; `keep` stays inside `carry`.
        unsafe {
            if self.have > 0 {
                let n = len.min(N - self.have);
                self.keep::<S>(dst, src, n);
                if self.have < N {
                    return;
                }
                self.have = 0;
                let carry = self.carry;
                self.core
                    .groups::<Sum>(tier, std::ptr::null_mut(), carry.as_ptr(), N);
                (src, len) = (src.add(n), len - n);
                dst = dst.wrapping_add(n);
            }
            let whole = len - len % N;
            self.core.groups::<S>(tier, dst, src, whole);
            if whole < len {
                self.keep::<S>(dst.wrapping_add(whole), src.add(whole), len - whole);
            }
        }
    }

    /// Returns whether all pieces so far ended at the end of a group.
    pub(crate) fn is_even(&self) -> bool {
        self.have == 0
    }

    /// [`keep`] into the carry.
    ///
    /// # Safety
    /// As [`keep`].
    unsafe fn keep<S: Store>(&mut self, dst: *mut u8, src: *const u8, n: usize) {
        // SAFETY: the caller's contract.
        unsafe { keep::<S>(&mut self.carry[self.have..], dst, src, n) };
        self.have += n;
    }

    #[inline]
    pub(crate) fn finish(&self, tier: Tier) -> u64 {
        self.core.finish(tier, &self.carry[..self.have])
    }
}

/// Copies `n` bytes to `carry` and from there to `dst`, so that both have the same bytes.
///
/// # Safety
/// As [`Core::groups`], with `n` at most the length of `carry`.
#[inline]
pub(crate) unsafe fn keep<S: Store>(carry: &mut [u8], dst: *mut u8, src: *const u8, n: usize) {
    let carry = &mut carry[..n];
    // SAFETY: the caller's contract.
    unsafe {
        std::ptr::copy_nonoverlapping(src, carry.as_mut_ptr(), n);
        if S::STORE {
            std::ptr::copy_nonoverlapping(carry.as_ptr(), dst, n);
        }
    }
}

/// Calls `add` with each `N` bytes of `len`, a multiple of `N`, and stores them if `S` stores.
///
/// # Safety
/// As [`Core::groups`].
#[inline(always)]
pub(crate) unsafe fn each<S: Store, const N: usize>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    mut add: impl FnMut([u8; N]),
) {
    let mut at = 0;
    while at + N <= len {
        // SAFETY: `at + N` is at most `len`; arrays of bytes need no alignment.
        let bytes = unsafe {
            let bytes = src.add(at).cast::<[u8; N]>().read();
            if S::STORE {
                dst.add(at).cast::<[u8; N]>().write(bytes);
            }
            bytes
        };
        add(bytes);
        at += N;
    }
}

/// Compiles one kernel `fn(&mut State, dst, src, len)`, generic over [`Store`], for each tier.
macro_rules! tiered {
    ($(#[$doc:meta])* $name:ident, $state:ty, $kernel:ident) => {
        $(#[$doc])*
        #[inline]
        unsafe fn $name<S: Store>(
            tier: Tier,
            state: &mut $state,
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn avx2<S: Store>(s: &mut $state, d: *mut u8, p: *const u8, n: usize) {
                    // SAFETY: the caller's contract.
                    unsafe { $kernel::<S>(s, d, p, n) }
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                unsafe fn avx512<S: Store>(s: &mut $state, d: *mut u8, p: *const u8, n: usize) {
                    // SAFETY: the caller's contract.
                    unsafe { $kernel::<S>(s, d, p, n) }
                }
                // SAFETY: the tier implies the features; the rest is the caller's contract.
                unsafe {
                    match tier {
                        Tier::Avx512 => return avx512::<S>(state, dst, src, len),
                        Tier::Avx2 | Tier::Vpclmul => return avx2::<S>(state, dst, src, len),
                        // The compiler's code for any processor of the architecture.
                        _ => {}
                    }
                }
            }
            let _ = tier;
            // SAFETY: the caller's contract.
            unsafe { $kernel::<S>(state, dst, src, len) }
        }
    };
}
pub(crate) use tiered;
