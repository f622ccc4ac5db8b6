//! AEGIS-128X2 as a message authentication code (RFC 10032), cut to 64 bits: the
//! keyed algorithm. The crate `aegis` computes it; `docs/design/security.md` says what it promises.
//!
//! The seed's number, little endian and followed by zeros, is the nonce. A message authentication
//! code by AEGIS needs no nonce that is used once; this nonce separates fragments.

use crate::seed::Seed;
use crate::store::Store;
use ::aegis::aegis128x2::Aegis128X2Mac;

/// Bytes of a tag, of which a sum has the first 8.
const TAG_BYTES: usize = 16;

/// Bytes that are copied before they are summed from the destination: both loops find them in L1.
const BLOCK: usize = 4096;

/// The state of a sum.
#[derive(Clone, Debug)]
pub(crate) struct Aegis(Aegis128X2Mac<TAG_BYTES>);

impl Aegis {
    pub(crate) fn new(seed: &Seed) -> Aegis {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&seed.number.to_le_bytes());
        Aegis(Aegis128X2Mac::new_with_nonce(seed.key.bytes(), &nonce))
    }

    /// Adds `len` bytes, and stores them if `S` stores.
    ///
    /// # Safety
    /// `src` readable for `len` bytes; if `S` stores, `dst` writable for as many, not overlapping.
    pub(crate) unsafe fn feed<S: Store>(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            let n = BLOCK.min(len - at);
            // SAFETY: the block ends at or before `len`. If the bytes are stored, the sum reads
            // the stored ones, so that sum and copy see the same.
            let bytes = unsafe {
                let mut from = src.add(at);
                if S::STORE {
                    std::ptr::copy_nonoverlapping(from, dst.add(at), n);
                    from = dst.add(at);
                }
                std::slice::from_raw_parts(from, n)
            };
            self.0.update(bytes);
            at += n;
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        let tag = self.0.clone().finalize();
        let mut word = [0; 8];
        word.copy_from_slice(&tag[..8]);
        u64::from_le_bytes(word)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::seed::SumKey;
    use crate::{copy_and_sum, sum, Algorithm};

    /// The test vector of RFC 10032.
    #[test]
    fn sums_are_the_first_half_of_the_tag() {
        let mut key = [0; SumKey::LEN];
        (key[0], key[1]) = (0x10, 0x01);
        let seed = Seed::keyed(0x0002_0010, SumKey::new(key));
        let bytes: Vec<u8> = (0..35).collect();
        let want = u64::from_le_bytes([0x68, 0x73, 0xee, 0x34, 0xe6, 0xb5, 0xc5, 0x91]);
        assert_eq!(sum(Algorithm::Aegis, seed, &bytes), want);
        let mut copy = [0; 35];
        // SAFETY: both have 35 bytes and do not overlap.
        let got = unsafe {
            copy_and_sum(
                Algorithm::Aegis,
                seed,
                copy.as_mut_ptr(),
                bytes.as_ptr(),
                35,
            )
        };
        assert!(got == want && copy[..] == bytes);
    }

    #[test]
    fn every_bit_of_the_key_counts() {
        let of = |key| {
            sum(
                Algorithm::Aegis,
                Seed::keyed(1, SumKey::new(key)),
                b"payload",
            )
        };
        let mut sums = vec![of([0; SumKey::LEN])];
        for bit in 0..8 * SumKey::LEN {
            let mut key = [0; SumKey::LEN];
            key[bit / 8] = 1 << (bit % 8);
            sums.push(of(key));
        }
        let all = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), all);
        assert!(!format!("{:?}", Seed::keyed(1, SumKey::new([7; 16]))).contains('7'));
    }
}
