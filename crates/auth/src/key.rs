//! A key of tags, and the tags that it makes; keys of payload sums and of ciphers.

use aegis::aegis128x2::Aegis128X2;
use core::hash::Hasher;
use hkdf::Hkdf;
use sha2::Sha256;
use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

/// The key of one direction's heads, or of questions.
#[derive(Clone, Copy, Default)]
pub struct HeadKey {
    first: u64,
    second: u64,
}

impl core::fmt::Debug for HeadKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HeadKey(secret)")
    }
}

impl HeadKey {
    /// The key with these bytes, which are wiped.
    pub(crate) fn of(mut bytes: [u8; 16]) -> HeadKey {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let key = HeadKey {
            first: word(0),
            second: word(8),
        };
        bytes.zeroize();
        key
    }

    /// The tag of a head: SipHash-2-4 of its bytes.
    #[inline]
    pub fn tag(&self, head: &[u8]) -> u64 {
        SipHasher24::new_with_keys(self.first, self.second).hash(head)
    }

    /// The tag of a packet: SipHash-2-4 of both words, little endian, and the frames.
    #[inline]
    pub fn packet_tag(&self, fixed: [u64; 2], frames: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.first, self.second);
        fixed.iter().for_each(|word| hasher.write_u64(*word));
        hasher.hash(frames)
    }

    /// Returns whether `tag` belongs to the head. (A comparison of words takes the same time
    /// wherever they differ.)
    #[inline]
    pub fn is_tag(&self, head: &[u8], tag: u64) -> bool {
        self.tag(head) == tag
    }

    /// Overwrites the key.
    pub(crate) fn wipe(&mut self) {
        self.first.zeroize();
        self.second.zeroize();
    }
}

/// The key of one direction's payload sums, or of a group's.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PayloadKey([u8; 16]);

impl core::fmt::Debug for PayloadKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PayloadKey(secret)")
    }
}

impl PayloadKey {
    /// The key that `root` gives for these bytes.
    pub(crate) fn derive(root: &Hkdf<Sha256>, info: &[&[u8]]) -> PayloadKey {
        let mut key = PayloadKey::default();
        // (HKDF refuses only more than 255 blocks.)
        let derived = root.expand_multi_info(info, &mut key.0);
        debug_assert!(derived.is_ok());
        key
    }

    /// The bytes of the key, for the sum's algorithm.
    #[inline]
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Overwrites the key.
    pub(crate) fn wipe(&mut self) {
        self.0.zeroize();
    }
}

/// The key under which the payloads of one direction's packets, or of a group's, are encrypted.
#[derive(Clone, Copy)]
pub struct CipherKey([u8; 16]);

impl core::fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CipherKey(secret)")
    }
}

impl CipherKey {
    /// The key that `root` gives for these bytes.
    pub(crate) fn derive(root: &Hkdf<Sha256>, info: &[&[u8]]) -> CipherKey {
        let mut key = CipherKey([0; 16]);
        // (HKDF refuses only more than 255 blocks.)
        let derived = root.expand_multi_info(info, &mut key.0);
        debug_assert!(derived.is_ok());
        key
    }

    /// Encrypts or decrypts `bytes` in place: combines them with the output of AEGIS-128X2 as a
    /// stream cipher (RFC 10032). `nonce`, two little-endian words, must not have been used for
    /// other bytes under this key. Does not show whether bytes were changed.
    #[inline]
    pub fn apply(&self, nonce: [u64; 2], bytes: &mut [u8]) {
        let mut words = [0; 16];
        words[..8].copy_from_slice(&nonce[0].to_le_bytes());
        words[8..].copy_from_slice(&nonce[1].to_le_bytes());
        Aegis128X2::<16>::new(&self.0, &words).stream_xor_in_place(bytes);
    }

    /// Overwrites the key.
    pub(crate) fn wipe(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the SipHash paper and of its authors' program.
    #[test]
    fn tags_are_those_of_siphash() {
        let key = HeadKey {
            first: 0x0706_0504_0302_0100,
            second: 0x0f0e_0d0c_0b0a_0908,
        };
        let bytes: Vec<u8> = (0..15).collect();
        assert_eq!(key.tag(&bytes), 0xa129_ca61_49be_45e5);
        assert_eq!(key.tag(&[]), 0x726f_db47_dd0e_0e31);
        let words: Vec<u8> = (0..40).collect();
        let (fixed, frames) = words.split_at(16);
        let word = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().unwrap());
        let split = key.packet_tag([word(0), word(8)], frames);
        assert_eq!(split, key.tag(&words));
    }
}
