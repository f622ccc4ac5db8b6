//! The kernels of `crate::nh`, written once over a way to multiply lanes.

use super::fold128::{fold, reduce};
use super::vector::Vector;
use crate::crc::{Nvme, Poly};
use crate::lanes::nh::{last, Products, BLOCK_LANES, KEYS, LANE};
use crate::store::Store;

/// A way to multiply the two words of lanes.
pub(super) trait Multiply<V> {
    /// Adds to `sum` the products of `len` bytes of lanes, all of one block, beginning with its
    /// lane `lane`; stores them according to `S`.
    ///
    /// # Safety
    /// As [`lanes`]; `lane` and the following lanes are within a block.
    unsafe fn add<S: Store>(sum: V, lane: usize, dst: *mut u8, src: *const u8, len: usize) -> V;

    /// Adds whole blocks, `len` bytes, to earlier ones.
    ///
    /// # Safety
    /// As [`lanes`]; `len` is a multiple of a block.
    unsafe fn blocks<S: Store>(sum: V, dst: *mut u8, src: *const u8, len: usize) -> V;
}

/// A lane per register.
pub(super) struct Single;

impl<V: Vector> Multiply<V> for Single {
    #[inline(always)]
    unsafe fn add<S: Store>(
        mut sum: V,
        lane: usize,
        dst: *mut u8,
        src: *const u8,
        len: usize,
    ) -> V {
        // SAFETY: lanes end at or before `len`, and each has a constant.
        unsafe {
            let keys = KEYS.0.as_ptr().add(2 * lane).cast::<u8>();
            let mut at = 0;
            while at < len {
                let v = V::load(src.add(at));
                if S::STREAM {
                    v.stream(dst.add(at));
                } else if S::STORE {
                    v.store(dst.add(at));
                }
                sum = sum.xor(v.xor(V::load(keys.add(at))).multiply_halves());
                at += LANE;
            }
            sum
        }
    }

    #[inline(always)]
    unsafe fn blocks<S: Store>(mut sum: V, dst: *mut u8, src: *const u8, len: usize) -> V {
        let mut at = 0;
        // SAFETY: blocks end at or before `len`.
        unsafe {
            while at < len {
                let (dst, src) = (dst.wrapping_add(at), src.add(at));
                let block = <Single as Multiply<V>>::add::<S>(V::of([0, 0]), 0, dst, src, BLOCK);
                sum = fold(sum, V::of(Nvme::FOLD_8192), block);
                at += BLOCK;
            }
        }
        sum
    }
}

/// Bytes of a block.
pub(super) const BLOCK: usize = BLOCK_LANES * LANE;

/// Adds whole lanes.
///
/// # Safety
/// The CPU has the features of `V` and `M`; `len` is a multiple of a lane; `src` is readable for
/// `len` bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap; if `S`
/// streams, `dst` is aligned to a lane.
#[inline(always)]
pub(super) unsafe fn lanes<V: Vector, M: Multiply<V>, S: Store>(
    products: &mut Products,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    // SAFETY: the caller's contract, in parts that end with a block or with the data.
    unsafe {
        let (mut blocks, mut open) = (V::of(products.blocks), V::of(products.open));
        let k = V::of(Nvme::FOLD_8192);
        let mut lane = products.lanes;
        let mut at = 0;
        while at < len {
            if lane == 0 && len - at >= BLOCK {
                let n = (len - at) - (len - at) % BLOCK;
                blocks = M::blocks::<S>(blocks, dst.wrapping_add(at), src.add(at), n);
                at += n;
                continue;
            }
            let n = ((BLOCK_LANES - lane) * LANE).min(len - at);
            open = M::add::<S>(open, lane, dst.wrapping_add(at), src.add(at), n);
            lane += n / LANE;
            if lane == BLOCK_LANES {
                blocks = fold(blocks, k, open);
                (open, lane) = (V::of([0, 0]), 0);
            }
            at += n;
        }
        *products = Products {
            blocks: blocks.halves(),
            open: open.halves(),
            lanes: lane,
        };
    }
}

/// The remainder after the words of an incomplete last lane, if any.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn rest<V: Vector>(products: &Products, words: Option<[u64; 2]>) -> u64 {
    // SAFETY: the caller's contract; the incomplete block has a free lane.
    unsafe {
        let (mut blocks, mut open) = (V::of(products.blocks), V::of(products.open));
        if let Some(words) = words {
            open = open.xor(product(words, products.lanes));
        }
        if products.lanes > 0 || words.is_some() {
            blocks = fold(blocks, V::of(Nvme::FOLD_8192), open);
        }
        reduce::<V, Nvme>(blocks)
    }
}

/// The product of the words of a lane.
///
/// # Safety
/// The CPU has the features of `V`, and a block has this lane.
#[inline(always)]
unsafe fn product<V: Vector>(words: [u64; 2], lane: usize) -> V {
    // SAFETY: the caller's contract.
    unsafe {
        let key = V::load(KEYS.0.as_ptr().add(2 * lane).cast());
        V::of(words).xor(key).multiply_halves()
    }
}

/// The remainder of all bytes.
///
/// # Safety
/// As [`lanes`], for any `len`.
#[inline(always)]
pub(super) unsafe fn whole<V: Vector, M: Multiply<V>, S: Store>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> u64 {
    let mut products = Products::default();
    let done = len - len % LANE;
    // SAFETY: the caller's contract in two parts; less than a block leaves a lane for the rest.
    unsafe {
        let to = dst.wrapping_add(done);
        if len < BLOCK {
            let sum = M::add::<S>(V::of([0, 0]), 0, dst, src, done);
            let words = last::<S>(to, src.add(done), len - done);
            let tail = words.map_or(V::of([0, 0]), |words| product(words, done / LANE));
            return reduce::<V, Nvme>(sum.xor(tail));
        }
        lanes::<V, M, S>(&mut products, dst, src, done);
        rest::<V>(&products, last::<S>(to, src.add(done), len - done))
    }
}
