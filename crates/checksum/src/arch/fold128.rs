//! CRC folding with 128-bit carry-less multiplication: 64 or 128 bytes per iteration.

use super::vector::Vector;
use crate::crc::{update_portable, Poly};
use crate::prefetch;
use crate::store::Store;

/// Rotations and masks by 0..=15 bytes are windows of these tables.
static TURN: [u8; 32] = {
    let mut t = [0; 32];
    let mut i = 0;
    while i < 32 {
        t[i] = (i % 16) as u8;
        i += 1;
    }
    t
};
static LAST: [u8; 32] = {
    let mut t = [0; 32];
    let mut i = 16;
    while i < 32 {
        t[i] = 0xff;
        i += 1;
    }
    t
};

/// Prefetch distance in bytes of the streaming loop.
const PREFETCH_BYTES: usize = 1024;

/// For shorter data, merging eight accumulators costs more than they gain.
const EIGHT_MIN_BYTES: usize = 256;

/// Adds `len` bytes at `src` to `state` and stores them at `dst` according to `S`.
///
/// # Safety
/// The CPU has the features of `V`. `src` is readable for `len` bytes; if `S` stores, `dst` is
/// writable for `len` bytes and does not overlap; if `S` streams, `dst` is 16-byte aligned.
#[inline(always)]
pub(super) unsafe fn update<V: Vector, P: Poly, S: Store>(
    state: u64,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> u64 {
    // SAFETY: the caller's contract; every access below ends at or before `len`.
    unsafe {
        if len < 16 {
            let mut bytes = [0u8; 16];
            std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), len);
            if S::STORE {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, len);
            }
            return update_portable::<P>(state, &bytes[..len]);
        }
        let first = V::of([state, 0]);
        let (acc, done) = if len >= 64 {
            quads::<V, P, S>(first, src, dst, len)
        } else {
            (first.xor(take::<V, S>(src, dst, 0)), 16)
        };
        rest::<V, P, S>(acc, src, dst, len, done)
    }
}

/// Folds the bytes from `done` on into an accumulator, block by block, and reduces it.
///
/// # Safety
/// As [`update`]; `done` is at least 16.
#[inline(always)]
pub(super) unsafe fn rest<V: Vector, P: Poly, S: Store>(
    mut acc: V,
    src: *const u8,
    dst: *mut u8,
    len: usize,
    mut done: usize,
) -> u64 {
    // SAFETY: the caller's contract; every access below ends at or before `len`.
    unsafe {
        let k = V::of(P::FOLD_128);
        while len - done >= 16 {
            acc = fold(acc, k, take::<V, S>(src, dst, done));
            done += 16;
        }
        if done < len {
            acc = tail::<V, P, S>(acc, src, dst, len, len - done);
        }
        let last = fold(acc, V::of(P::FOLD_64), V::of([0, 0]));
        reduce::<V, P>(last)
    }
}

/// The main loop: four accumulators, preceded by eight if that is faster; merged at the end.
#[inline(always)]
unsafe fn quads<V: Vector, P: Poly, S: Store>(
    first: V,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> (V, usize) {
    // SAFETY: `len` is at least 64 and every block ends at or before it.
    unsafe {
        let k = V::of(P::FOLD_512);
        let (mut acc, mut done);
        if V::EIGHT && len >= EIGHT_MIN_BYTES {
            let ([a, b, c, d, e, f, g, h], n) = eights::<V, P, S>(first, src, dst, len);
            done = n;
            acc = [fold(a, k, e), fold(b, k, f), fold(c, k, g), fold(d, k, h)];
        } else {
            acc = take_all::<V, S, 4>(src, dst, 0);
            acc[0] = acc[0].xor(first);
            done = 64;
        }
        while len - done >= 64 {
            acc = fold_all(acc, k, take_all::<V, S, 4>(src, dst, done));
            done += 64;
        }
        let [a, b, c, d] = acc;
        let ad = fold(a, V::of(P::FOLD_384), d);
        let abd = fold(b, V::of(P::FOLD_256), ad);
        (fold(c, V::of(P::FOLD_128), abd), done)
    }
}

/// 128 bytes per iteration.
#[inline(always)]
unsafe fn eights<V: Vector, P: Poly, S: Store>(
    first: V,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> ([V; 8], usize) {
    // SAFETY: `len` is at least 128 and every block ends at or before it.
    unsafe {
        let k = V::of(P::FOLD_1024);
        let mut acc = take_all::<V, S, 8>(src, dst, 0);
        acc[0] = acc[0].xor(first);
        let mut done = 128;
        while len - done >= 128 {
            acc = fold_all(acc, k, take_all::<V, S, 8>(src, dst, done));
            done += 128;
        }
        (acc, done)
    }
}

/// The last 1..=15 bytes; at least 16 precede the end.
#[inline(always)]
unsafe fn tail<V: Vector, P: Poly, S: Store>(
    acc: V,
    src: *const u8,
    dst: *mut u8,
    len: usize,
    count: usize,
) -> V {
    // SAFETY: windows of 16 inside the 32-byte tables, as `count` is 1..=15; the data's last 16
    // bytes exist. The stored bytes come from the load that is summed.
    unsafe {
        let turn = V::load(TURN.as_ptr().add(count));
        let mask = V::load(LAST.as_ptr().add(count));
        let turned = acc.pick(turn);
        let end = V::load(src.add(len - 16));
        if S::STORE {
            let mut bytes = [0u8; 16];
            end.store(bytes.as_mut_ptr());
            let from = bytes.as_ptr().add(16 - count);
            std::ptr::copy_nonoverlapping(from, dst.add(len - count), count);
        }
        let out = V::of([0, 0]).replace(turned, mask);
        fold(out, V::of(P::FOLD_128), turned.replace(end, mask))
    }
}

/// `N` consecutive blocks.
#[inline(always)]
unsafe fn take_all<V: Vector, S: Store, const N: usize>(
    src: *const u8,
    dst: *mut u8,
    at: usize,
) -> [V; N] {
    // SAFETY: the callers access only whole blocks inside the buffers.
    unsafe {
        if S::STREAM {
            for line in 0..N / 4 {
                prefetch::line_for_read(src.wrapping_add(at + 64 * line + PREFETCH_BYTES));
            }
        }
        let mut blocks = [V::of([0, 0]); N];
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = take::<V, S>(src, dst, at + 16 * i);
        }
        blocks
    }
}

#[inline(always)]
unsafe fn take<V: Vector, S: Store>(src: *const u8, dst: *mut u8, at: usize) -> V {
    // SAFETY: the callers access only whole blocks inside the buffers; `S` determines the
    // requirements for `dst`.
    unsafe {
        let v = V::load(src.add(at));
        if S::STREAM {
            v.stream(dst.add(at));
        } else if S::STORE {
            v.store(dst.add(at));
        }
        v
    }
}

/// Advances each accumulator by the distance of `k` and adds its block.
#[inline(always)]
unsafe fn fold_all<V: Vector, const N: usize>(mut acc: [V; N], k: V, blocks: [V; N]) -> [V; N] {
    for (acc, block) in acc.iter_mut().zip(blocks) {
        // SAFETY: the caller's contract: the CPU has the features.
        *acc = unsafe { fold(*acc, k, block) };
    }
    acc
}

/// Advances an accumulator by the distance of `k` and adds the next block.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn fold<V: Vector>(acc: V, k: V, next: V) -> V {
    // SAFETY: the caller's contract: the CPU has the features.
    unsafe { acc.multiply_low(k).xor(acc.multiply_high(k)).xor(next) }
}

/// Barrett reduction of a 128-bit register, already multiplied by x^64, to the CRC register.
///
/// # Safety
/// The CPU has the features of `V`.
#[inline(always)]
pub(super) unsafe fn reduce<V: Vector, P: Poly>(v: V) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        let quotient = v.multiply_low(V::of([P::MU_SHIFTED, 0]));
        let product = quotient.multiply_low(V::of([P::POLY_SHIFTED, 0]));
        let [_, rest] = v.xor(product).halves();
        match P::HAS_ONE {
            true => rest ^ quotient.halves()[0],
            false => rest,
        }
    }
}
