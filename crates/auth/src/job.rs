//! The key of a job, and the keys that follow from it.

use crate::key::HeadKey;
use core::fmt;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a job's key.
pub const JOB_KEY_LEN: usize = 32;
/// Salt of all keys: another protocol that is given the same secret derives other keys.
const SALT: &[u8] = b"marline job key 1";
/// Purposes of keys, which separate their values.
const HEADS: &[u8] = b"heads";
const MARK: &[u8] = b"mark";
const QUESTIONS: &[u8] = b"questions";
const CONNECTIONS: &[u8] = b"connections";
/// Marks are below this: eleven bits of an address.
const MARK_END: u16 = 1 << 11;

/// The secret that all processes of a job share. Wiped from memory when dropped.
pub struct JobKey(Zeroizing<[u8; JOB_KEY_LEN]>);

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

impl JobKey {
    /// The key with these bytes, which have to be random.
    pub fn new(bytes: [u8; JOB_KEY_LEN]) -> JobKey {
        JobKey(Zeroizing::new(bytes))
    }

    /// The key in 64 hexadecimal digits, with blanks around them.
    pub fn from_hex(text: &str) -> Option<JobKey> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * JOB_KEY_LEN {
            return None;
        }
        let mut key = JobKey::new([0; JOB_KEY_LEN]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(key)
    }

    /// The key in 64 hexadecimal digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * JOB_KEY_LEN));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(digit.into(), 16));
            }
        }
        text
    }

    /// A number from 1 to 2,047 by which two processes notice that their keys differ. Eleven bits
    /// of a derived key, which may be shown.
    pub fn mark(&self) -> u16 {
        let mut bytes = [0; 8];
        self.derive(MARK, &mut bytes);
        let spread = u64::from_le_bytes(bytes) % u64::from(MARK_END - 1);
        1 + spread as u16
    }

    /// The key of questions, which name no endpoint yet.
    pub fn questions(&self) -> HeadKey {
        let mut bytes = [0; 16];
        self.derive(QUESTIONS, &mut bytes);
        let key = HeadKey::of(bytes);
        bytes.zeroize();
        key
    }

    /// The key from which the keys of directions are derived.
    pub(crate) fn heads(&self) -> Hkdf<Sha256> {
        self.root(HEADS)
    }

    /// The key from which those of connections follow.
    pub(crate) fn connections(&self) -> Hkdf<Sha256> {
        self.root(CONNECTIONS)
    }

    /// The key from which all keys of a purpose follow.
    fn root(&self, purpose: &[u8]) -> Hkdf<Sha256> {
        let mut secret = Zeroizing::new([0; JOB_KEY_LEN]);
        self.derive(purpose, secret.as_mut());
        Hkdf::new(Some(SALT), secret.as_ref())
    }

    fn derive(&self, purpose: &[u8], out: &mut [u8]) {
        out.zeroize();
        let keys = Hkdf::<Sha256>::new(Some(SALT), self.0.as_ref());
        // (HKDF refuses only more than 255 blocks.)
        let derived = keys.expand(purpose, out);
        debug_assert!(derived.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = JobKey::new(core::array::from_fn(|at| (at as u8).wrapping_mul(37)));
        let text = key.to_hex();
        let read = JobKey::from_hex(&format!(" {}\n", *text)).unwrap();
        assert_eq!(*read.to_hex(), *text);
        assert_eq!(read.mark(), key.mark());
        let wrong = [&text[1..], &text.replace('a', "g"), "", "\u{e9}"];
        for wrong in wrong {
            assert!(JobKey::from_hex(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{key:?}").contains(&text[..4]));
    }

    /// The derivation is part of the protocol.
    #[test]
    fn questions_have_a_key_of_their_own() {
        let tag = |n| JobKey::new([n; JOB_KEY_LEN]).questions().tag(b"who");
        assert_ne!(tag(1), tag(2));
        assert_eq!(tag(7), 0x1d7a_ad2b_d23e_3dd0);
    }

    #[test]
    fn marks_of_keys_differ_and_are_never_that_of_no_key() {
        let marks = (0..=255).map(|n| JobKey::new([n; JOB_KEY_LEN]).mark());
        let mut marks: Vec<_> = marks.collect();
        assert!(marks.iter().all(|mark| (1..MARK_END).contains(mark)));
        marks.sort_unstable();
        marks.dedup();
        assert!(marks.len() > 200, "{}", marks.len());
    }
}
