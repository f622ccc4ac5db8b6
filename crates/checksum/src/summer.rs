//! Checksums, incremental or in one call.

use crate::aegis::Aegis;
use crate::aes::{self, AesLanes};
use crate::algorithm::Algorithm;
use crate::crc::{Castagnoli, Nvme, Poly};
use crate::dispatch;
use crate::lanes::aes::GROUP;
use crate::lanes::nh::LANE;
use crate::nh::{self, Crc64Nh};
use crate::papers::classic::{FnvBytes, FnvWords, Jenkins, Knuth, Murmur2a, SuperFast, FNV_BASIS};
use crate::papers::sums::{Adler32, Fletcher64, Sum32, Xor32};
use crate::pieces::Pieces;
use crate::plan;
use crate::seed::Seed;
use crate::store::{Cached, CopyMode, Far, Store, Streaming, Sum};
use crate::tier::{tier, Tier};
use crate::xxh3::{self, Xxh3};

/// Bytes that [`Variant::Blocked`] copies and then sums at a time: small enough to stay in L1.
pub const BLOCK_BYTES: usize = 4096;

/// How copying and summing are combined (section 4.1 of paper 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// One loop loads, stores and sums.
    #[default]
    Fused,
    /// Alternately copies and sums [`BLOCK_BYTES`].
    Blocked,
}

/// An incremental sum (for iovecs; the converter of paper 3).
///
/// The result does not depend on the division into pieces.
#[derive(Clone, Debug)]
pub struct Summer {
    tier: Tier,
    state: State,
}

#[derive(Clone, Debug)]
// A `Summer` lives on the stack during a copy: boxing the large variants would cost more.
#[allow(clippy::large_enum_variant)]
enum State {
    None,
    Crc64(u64),
    Crc32c(u32),
    Aegis(Aegis),
    Xxh3(Xxh3),
    AesLanes(Pieces<AesLanes, { GROUP }>),
    Crc64Nh(Pieces<Crc64Nh, { LANE }>),
    Fletcher64(Pieces<Fletcher64, 4>),
    Adler32(Pieces<Adler32, 1>),
    Fnv1a(Pieces<FnvWords, 8>),
    Fnv1aBytes(Pieces<FnvBytes, 1>),
    Murmur2a(Pieces<Murmur2a, 4>),
    SuperFast(Pieces<SuperFast, 4>),
    Jenkins(Pieces<Jenkins, 1>),
    Knuth(Pieces<Knuth, 4>),
    Sum32(Pieces<Sum32, 4>),
    Xor32(Pieces<Xor32, 4>),
}

/// Applies an expression to the state of any variant except the plain words and the keyed one.
macro_rules! with_other {
    ($state:expr, $s:ident => $do:expr, else $otherwise:expr) => {
        match $state {
            State::None | State::Crc64(_) | State::Crc32c(_) | State::Aegis(_) => $otherwise,
            State::Xxh3($s) => $do,
            State::AesLanes($s) => $do,
            State::Crc64Nh($s) => $do,
            State::Fletcher64($s) => $do,
            State::Adler32($s) => $do,
            State::Fnv1a($s) => $do,
            State::Fnv1aBytes($s) => $do,
            State::Murmur2a($s) => $do,
            State::SuperFast($s) => $do,
            State::Jenkins($s) => $do,
            State::Knuth($s) => $do,
            State::Sum32($s) => $do,
            State::Xor32($s) => $do,
        }
    };
}

/// Spreads a seed over all bits: a bijection that maps 0 to 0, which preserves published values.
///
/// A CRC is linear: without this, data wrong by d would cancel a seed wrong by d.
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

#[inline]
fn crc64_start(seed: u64) -> u64 {
    Nvme::ONES ^ mix(seed)
}

#[inline]
fn crc32c_start(seed: u64) -> u32 {
    !mix32(seed)
}

/// The sum of `bytes` in one call.
#[inline]
pub fn sum(algorithm: Algorithm, seed: impl Into<Seed>, bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable, and `Sum` stores nothing.
    unsafe {
        whole::<Sum>(
            algorithm,
            seed.into(),
            std::ptr::null_mut(),
            bytes.as_ptr(),
            bytes.len(),
        )
    }
}

/// Copies `len` bytes from `src` to `dst` and sums them, in one loop unless a [`crate::Plan`] says
/// otherwise; returns the sum.
///
/// Uses plain stores, except that the CRCs and products stream from [`crate::stream_min_bytes`] on
/// or from the length in a plan.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping.
#[inline]
pub unsafe fn copy_and_sum(
    algorithm: Algorithm,
    seed: impl Into<Seed>,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    let seed = seed.into();
    // SAFETY: the caller's contract.
    unsafe {
        if plan::streams(algorithm, len) {
            return copy_and_sum_streaming(algorithm, seed, dst, src, len);
        }
        if let Some(block) = plan::block_for(algorithm, len) {
            return copy_blocks_and_sum(algorithm, seed, dst, src, len, block);
        }
        copy_and_sum_fused(algorithm, seed, dst, src, len)
    }
}

/// [`copy_and_sum`] in one loop with plain stores, regardless of the plan.
///
/// # Safety
/// As [`copy_and_sum`].
#[inline]
pub(crate) unsafe fn copy_and_sum_fused(
    algorithm: Algorithm,
    seed: Seed,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { whole::<Cached>(algorithm, seed, dst, src, len) }
}

/// Alternately copies a block by memcpy and sums it at the destination (section 4.1 of paper 0,
/// section 5.3 of paper 2); returns the sum of all.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping. `block` above 0.
#[inline(never)]
pub(crate) unsafe fn copy_blocks_and_sum(
    algorithm: Algorithm,
    seed: Seed,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    block: usize,
) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    let mut at = 0;
    while at < len {
        let n = block.min(len - at);
        // SAFETY: the block ends at or before `len`. The sum reads the written bytes, so sum and
        // copy see the same bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), n);
            summer.update(std::slice::from_raw_parts(dst.add(at), n));
        }
        at += n;
    }
    summer.finish()
}

/// [`copy_and_sum`] for lengths beyond the cache; marked cold to keep the common path short.
///
/// # Safety
///
/// As [`copy_and_sum`].
#[cold]
pub(crate) unsafe fn copy_and_sum_streaming(
    algorithm: Algorithm,
    seed: Seed,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        let mut summer = Summer::new(algorithm, seed);
        summer.copy_with(dst, src, len, CopyMode::Streaming, Variant::Fused);
        summer.finish()
    }
}

/// A sum in one call. The CRCs need no [`Summer`] in memory.
///
/// # Safety
/// As [`Summer::feed`].
#[inline]
unsafe fn whole<S: Store>(
    algorithm: Algorithm,
    seed: Seed,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    let tier = crate::tier::tier();
    let number = seed.number;
    // SAFETY: the caller's contract; the tier is this CPU's.
    unsafe {
        match algorithm {
            Algorithm::Crc64Nvme => {
                dispatch::crc::<Nvme, S>(tier, crc64_start(number), src, dst, len) ^ Nvme::ONES
            }
            Algorithm::Crc32c => {
                dispatch::crc32c::<S>(tier, crc32c_start(number), src, dst, len) as u64
                    ^ Castagnoli::ONES
            }
            Algorithm::Crc64Nh => nh::whole::<S>(tier, mix(number), dst, src, len),
            Algorithm::Xxh3 => xxh3::whole::<S>(tier, number, dst, src, len),
            // A disabled checksum costs nothing beyond the copy.
            Algorithm::None => {
                if S::STORE {
                    std::ptr::copy_nonoverlapping(src, dst, len);
                }
                0
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Algorithm::AesLanes if tier >= Tier::Vpclmul => {
                aes::whole::<S>(tier, mix(number), dst, src, len)
            }
            _ => whole_other::<S>(algorithm, seed, dst, src, len),
        }
    }
}

#[inline(never)]
unsafe fn whole_other<S: Store>(
    algorithm: Algorithm,
    seed: Seed,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    // SAFETY: the caller's contract.
    unsafe { summer.feed::<S>(dst, src, len) };
    summer.finish()
}

impl Summer {
    /// Starts a sum.
    #[inline]
    pub fn new(algorithm: Algorithm, seed: impl Into<Seed>) -> Summer {
        let seed = seed.into();
        // Each arm builds the whole `Summer`: a separate `State` of 600 bytes would be copied in.
        match algorithm {
            Algorithm::Crc64Nvme => Summer::of(State::Crc64(crc64_start(seed.number))),
            Algorithm::Crc32c => Summer::of(State::Crc32c(crc32c_start(seed.number))),
            Algorithm::None => Summer::of(State::None),
            _ => Summer::new_other(algorithm, seed),
        }
    }

    #[inline(always)]
    fn of(state: State) -> Summer {
        Summer {
            tier: tier(),
            state,
        }
    }

    #[inline(never)]
    fn new_other(algorithm: Algorithm, seed: Seed) -> Summer {
        let (m, m32) = (mix(seed.number), mix32(seed.number));
        match algorithm {
            Algorithm::None | Algorithm::Crc64Nvme | Algorithm::Crc32c => Summer::of(State::None),
            Algorithm::Aegis => Summer::of(State::Aegis(Aegis::new(&seed))),
            Algorithm::Xxh3 => Summer::of(State::Xxh3(Xxh3::new(seed.number))),
            Algorithm::AesLanes => Summer::of(State::AesLanes(Pieces::new(AesLanes::new(m)))),
            Algorithm::Crc64Nh => Summer::of(State::Crc64Nh(Pieces::new(Crc64Nh::new(m)))),
            Algorithm::Fletcher64 => Summer::of(State::Fletcher64(Pieces::new(Fletcher64::new(m)))),
            Algorithm::Adler32 => Summer::of(State::Adler32(Pieces::new(Adler32::new(m32)))),
            Algorithm::Fnv1a => Summer::of(State::Fnv1a(Pieces::new(FnvWords(FNV_BASIS ^ m)))),
            Algorithm::Fnv1aBytes => {
                Summer::of(State::Fnv1aBytes(Pieces::new(FnvBytes(FNV_BASIS ^ m))))
            }
            Algorithm::Murmur2a => Summer::of(State::Murmur2a(Pieces::new(Murmur2a::new(m32)))),
            Algorithm::SuperFast => Summer::of(State::SuperFast(Pieces::new(SuperFast(m32)))),
            Algorithm::Jenkins => Summer::of(State::Jenkins(Pieces::new(Jenkins(m32)))),
            Algorithm::Knuth => Summer::of(State::Knuth(Pieces::new(Knuth(m32)))),
            Algorithm::Sum32 => Summer::of(State::Sum32(Pieces::new(Sum32(m32)))),
            Algorithm::Xor32 => Summer::of(State::Xor32(Pieces::new(Xor32(m32)))),
        }
    }

    /// A sum that uses the kernels of a lower tier, for comparison; a tier above this CPU's is
    /// lowered to the CPU's.
    pub fn with_tier(algorithm: Algorithm, seed: impl Into<Seed>, tier: Tier) -> Summer {
        let mut summer = Summer::new(algorithm, seed);
        summer.tier = tier.min(summer.tier);
        summer
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        // SAFETY: a slice is readable, and `Sum` stores nothing.
        unsafe { self.feed::<Sum>(std::ptr::null_mut(), bytes.as_ptr(), bytes.len()) }
    }

    /// [`Summer::update`] for bytes that are in no near cache: prefetches them well ahead.
    pub fn update_far(&mut self, bytes: &[u8]) {
        // SAFETY: a slice is readable, and `Far` stores nothing.
        unsafe { self.feed::<Far>(std::ptr::null_mut(), bytes.as_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes from `src` to `dst` and adds them to the sum: fused, with plain stores.
    ///
    /// # Safety
    /// `src` readable and `dst` writable for `len` bytes, not overlapping.
    #[inline]
    pub unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe { self.feed::<Cached>(dst, src, len) }
    }

    /// [`Summer::copy`] with a choice of stores and of loops.
    ///
    /// Fused streaming exists for the CRCs, and for products if the destination is aligned to 16
    /// bytes and all earlier pieces had whole lanes; the other algorithms stream in blocks and sum
    /// the source. Streamed bytes are summed as they were read for the sum, so a source that
    /// changes meanwhile fails its check at the receiver.
    ///
    /// # Safety
    /// As [`Summer::copy`].
    pub unsafe fn copy_with(
        &mut self,
        dst: *mut u8,
        src: *const u8,
        len: usize,
        mode: CopyMode,
        variant: Variant,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (mode, variant) {
                (CopyMode::Cached, Variant::Fused) => self.feed::<Cached>(dst, src, len),
                (CopyMode::Cached, Variant::Blocked) => self.copy_blocks(dst, src, len),
                (CopyMode::Streaming, Variant::Fused) if self.streams(dst) => {
                    self.feed::<Streaming>(dst, src, len);
                    dispatch::stream_fence();
                }
                (CopyMode::Streaming, _) => self.stream_blocks(dst, src, len),
            }
        }
    }

    /// Returns whether the next bytes may be streamed to `dst` in one loop.
    fn streams(&self, dst: *mut u8) -> bool {
        match &self.state {
            State::Crc64(_) | State::Crc32c(_) => true,
            // Products are streamed in whole lanes.
            State::Crc64Nh(s) => s.is_even() && (dst as usize).is_multiple_of(LANE),
            _ => false,
        }
    }

    /// # Safety
    /// As [`Summer::copy`].
    unsafe fn copy_blocks(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            let n = BLOCK_BYTES.min(len - at);
            // SAFETY: the block ends at or before `len`; the sum reads the written bytes, so sum
            // and copy see the same.
            unsafe {
                std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), n);
                self.feed::<Sum>(std::ptr::null_mut(), dst.add(at), n);
            }
            at += n;
        }
    }

    /// # Safety
    /// As [`Summer::copy`].
    unsafe fn stream_blocks(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        // The first block aligns `dst` to a page, so all later blocks begin on a cache line.
        let mut n = (BLOCK_BYTES - dst as usize % BLOCK_BYTES).min(len);
        let mut at = 0;
        while at < len {
            // SAFETY: the block ends at or before `len`.
            unsafe {
                self.feed::<Sum>(std::ptr::null_mut(), src.add(at), n);
                dispatch::stream(self.tier, dst.add(at), src.add(at), n);
            }
            at += n;
            n = BLOCK_BYTES.min(len - at);
        }
        dispatch::stream_fence();
    }

    /// # Safety
    /// `src` readable for `len` bytes; if `S` stores, `dst` writable for as many, not overlapping.
    /// [`Streaming`] only if [`Summer::streams`] to `dst`; the caller fences.
    #[inline]
    unsafe fn feed<S: Store>(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        let tier = self.tier;
        // SAFETY: the caller's contract; the tier is not above this CPU's.
        unsafe {
            match &mut self.state {
                State::Crc64(s) => *s = dispatch::crc::<Nvme, S>(tier, *s, src, dst, len),
                State::Crc32c(s) => *s = dispatch::crc32c::<S>(tier, *s, src, dst, len),
                State::Aegis(s) => s.feed::<S>(dst, src, len),
                State::None if S::STORE => std::ptr::copy_nonoverlapping(src, dst, len),
                State::None => {}
                _ => self.feed_other::<S>(dst, src, len),
            }
        }
    }

    /// # Safety
    /// As [`Summer::feed`].
    #[inline(never)]
    unsafe fn feed_other<S: Store>(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        let tier = self.tier;
        // SAFETY: the caller's contract; the tier is not above this CPU's.
        unsafe { with_other!(&mut self.state, s => s.feed::<S>(tier, dst, src, len), else {}) }
    }

    /// The sum (0 for [`Algorithm::None`]).
    ///
    /// Takes a reference, since consuming a large state would copy it; more bytes may be added
    /// after.
    #[inline]
    pub fn finish(&self) -> u64 {
        match &self.state {
            State::Crc64(s) => *s ^ Nvme::ONES,
            State::Crc32c(s) => !*s as u64,
            State::Aegis(s) => s.finish(),
            State::None => 0,
            _ => self.finish_other(),
        }
    }

    #[inline(never)]
    fn finish_other(&self) -> u64 {
        let tier = self.tier;
        with_other!(&self.state, s => s.finish(tier), else 0)
    }
}
