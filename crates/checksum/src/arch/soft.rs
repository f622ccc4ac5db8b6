//! The 128-bit kernels without special instructions. They are never the fastest, but show (also
//! under Miri) that the kernels stay within their memory; and products of pairs have no other
//! portable form.

use super::kernels::kernels;
use super::vector::Vector;
use crate::crc::{update_portable, Castagnoli};

/// A register in two words.
#[derive(Clone, Copy)]
pub(crate) struct Soft(u128);

fn product(a: u64, b: u64) -> Soft {
    let terms = (0..64)
        .filter(|i| b >> i & 1 == 1)
        .map(|i| u128::from(a) << i);
    Soft(terms.fold(0, |sum, term| sum ^ term))
}

impl Vector for Soft {
    // Covers all paths of the kernels.
    const EIGHT: bool = true;

    unsafe fn load(from: *const u8) -> Soft {
        // SAFETY: the caller's contract; arrays of bytes need no alignment.
        Soft(u128::from_le_bytes(unsafe {
            from.cast::<[u8; 16]>().read()
        }))
    }

    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe { to.cast::<[u8; 16]>().write(self.0.to_le_bytes()) }
    }

    unsafe fn stream(self, to: *mut u8) {
        assert!((to as usize).is_multiple_of(16), "streamed to {to:?}");
        // SAFETY: the caller's contract.
        unsafe { self.store(to) }
    }

    unsafe fn of([low, high]: [u64; 2]) -> Soft {
        Soft(u128::from(high) << 64 | u128::from(low))
    }

    unsafe fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    unsafe fn xor(self, other: Soft) -> Soft {
        Soft(self.0 ^ other.0)
    }

    unsafe fn multiply_low(self, by: Soft) -> Soft {
        product(self.0 as u64, by.0 as u64)
    }

    unsafe fn multiply_high(self, by: Soft) -> Soft {
        product((self.0 >> 64) as u64, (by.0 >> 64) as u64)
    }

    unsafe fn multiply_halves(self) -> Soft {
        product(self.0 as u64, (self.0 >> 64) as u64)
    }

    unsafe fn round(self, key: Soft) -> Soft {
        let next = crate::lanes::aes::round(self.0.to_le_bytes(), key.0.to_le_bytes());
        Soft(u128::from_le_bytes(next))
    }

    unsafe fn pick(self, indices: Soft) -> Soft {
        let from = self.0.to_le_bytes();
        let picked = indices.0.to_le_bytes().map(|i| from[usize::from(i)]);
        Soft(u128::from_le_bytes(picked))
    }

    unsafe fn replace(self, other: Soft, mask: Soft) -> Soft {
        Soft(self.0 & !mask.0 | other.0 & mask.0)
    }

    unsafe fn crc32c_word(state: u32, word: u64) -> u32 {
        update_portable::<Castagnoli>(state.into(), &word.to_le_bytes()) as u32
    }

    unsafe fn crc32c_half(state: u32, half: u32) -> u32 {
        update_portable::<Castagnoli>(state.into(), &half.to_le_bytes()) as u32
    }

    unsafe fn crc32c_byte(state: u32, byte: u8) -> u32 {
        update_portable::<Castagnoli>(state.into(), &[byte]) as u32
    }
}

kernels!(Soft);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aes::AesLanes;
    use crate::crc::{Nvme, Poly};
    use crate::lanes::aes::GROUP;
    use crate::pieces::Core;
    use crate::store::{Cached, Store, Streaming, Sum};
    use crate::tier::Tier;

    /// Around the sizes of blocks, loops and lanes; fewer under an interpreter.
    fn lengths() -> Vec<usize> {
        match cfg!(miri) {
            true => vec![0, 1, 15, 16, 17, 95, 103, 287],
            false => (0..700).collect(),
        }
    }

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 37 + i / 11) as u8).collect()
    }

    /// Memory for `len` bytes whose start is aligned for streaming, and which ends with the data.
    fn aligned(len: usize) -> (Vec<u8>, usize) {
        let memory = vec![0; len + 15];
        let at = memory.as_ptr().align_offset(16).min(15);
        (memory, at)
    }

    fn check_fold<P: Poly, S: Store>(bytes: &[u8]) {
        let len = bytes.len();
        let want = update_portable::<P>(9, bytes);
        let (mut memory, at) = aligned(len);
        let to = &mut memory[at..at + len];
        // SAFETY: no features are needed, and `to` is as long as `bytes`.
        let got = unsafe { crc::<P, S>(9, bytes.as_ptr(), to.as_mut_ptr(), len) };
        assert_eq!(got, want, "{len}");
        assert!(!S::STORE || to == bytes, "{len}");
    }

    #[test]
    fn folding_matches_the_tables() {
        for len in lengths() {
            let bytes = data(len);
            check_fold::<Nvme, Sum>(&bytes);
            check_fold::<Nvme, Cached>(&bytes);
            check_fold::<Nvme, Streaming>(&bytes);
            check_fold::<Castagnoli, Cached>(&bytes);
        }
    }

    #[test]
    fn three_lanes_are_one_crc() {
        for len in lengths() {
            let bytes = data(len);
            // SAFETY: no features are needed.
            let got = unsafe { crc32c(9, &bytes) };
            assert_eq!(
                got as u64,
                update_portable::<Castagnoli>(9, &bytes),
                "{len}"
            );
        }
    }

    #[test]
    fn lanes_in_registers_are_lanes_in_tables() {
        let bytes = data(2 * GROUP);
        let mut copy = vec![0; bytes.len()];
        let mut want = AesLanes::new(5);
        let mut lanes = want.lanes;
        // SAFETY: both have the stated length; no features are needed.
        let got = unsafe {
            let (src, len) = (bytes.as_ptr(), bytes.len());
            want.groups::<Sum>(Tier::Portable, std::ptr::null_mut(), src, len);
            aes_groups::<Cached>(&mut lanes, copy.as_mut_ptr(), src, len);
            aes_join(&lanes, len as u64)
        };
        assert_eq!(lanes.0, want.lanes.0);
        assert_eq!(got, want.finish(Tier::Portable, &[]));
        assert!(copy == bytes);
    }
}
