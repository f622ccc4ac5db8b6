//! AES lanes with one lane per register.

use super::vector::Vector;
use crate::lanes::aes::{Lanes, FIELD, GROUP, KEYS, LENGTH_KEY};
use crate::store::Store;

/// Adds whole groups.
///
/// # Safety
/// The CPU has the features of `V`; `len` is a multiple of [`GROUP`]; `src` is readable for `len`
/// bytes; if `S` stores, `dst` is writable for `len` bytes and does not overlap.
#[inline(always)]
pub(super) unsafe fn groups<V: Vector, S: Store>(
    lanes: &mut Lanes,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) {
    // SAFETY: blocks end at or before `len`.
    unsafe {
        // No closure: it would lack the target features and not be inlined.
        let mut v = [V::of([0, 0]); 16];
        for (v, lane) in v.iter_mut().zip(&lanes.0) {
            *v = V::load(lane.as_ptr());
        }
        let mut done = 0;
        while done + GROUP <= len {
            for (i, v) in v.iter_mut().enumerate() {
                let block = V::load(src.add(done + 16 * i));
                if S::STORE {
                    block.store(dst.add(done + 16 * i));
                }
                *v = v.round(block);
            }
            done += GROUP;
        }
        for (lane, v) in lanes.0.iter_mut().zip(v) {
            v.store(lane.as_mut_ptr());
        }
    }
}

/// The sum of all halves of lanes, and of the length, each times its constant.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn join<V: Vector>(lanes: &Lanes, len: u64) -> u64 {
    // SAFETY: the caller's contract; a lane is 16 bytes.
    unsafe {
        let mut sum = length::<V>(len);
        for (lane, keys) in lanes.0.iter().zip(KEYS.0.as_chunks::<2>().0) {
            let (v, k) = (V::load(lane.as_ptr()), V::of(*keys));
            sum = sum.xor(v.multiply_low(k)).xor(v.multiply_high(k));
        }
        reduce(sum)
    }
}

/// The length's product.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn length<V: Vector>(len: u64) -> V {
    // SAFETY: the caller's contract.
    unsafe { V::of([len, 0]).multiply_low(V::of([LENGTH_KEY, 0])) }
}

/// Reduces a sum of products, 127 bits, in the field.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn reduce<V: Vector>(v: V) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        let k = V::of([0, FIELD]);
        let once = v.multiply_high(k);
        // At most four bits of `once` lie above the 64th.
        let twice = once.multiply_high(k);
        v.xor(once).xor(twice).halves()[0]
    }
}
