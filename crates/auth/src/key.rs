//! A key of tags, and the tags that it makes.

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
    }
}
