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
const PAYLOADS: &[u8] = b"payloads";
const CIPHERS: &[u8] = b"ciphers";
const MARK: &[u8] = b"mark";
const WITH_PAYLOADS: &[u8] = b"with payload sums";
const WITH_ENCRYPTION: &[u8] = b"with encryption";
const QUESTIONS: &[u8] = b"questions";
const CONNECTIONS: &[u8] = b"connections";
const GROUPS: &[u8] = b"groups";
const GROUP_PAYLOADS: &[u8] = b"group payloads";
const GROUP_CIPHERS: &[u8] = b"group ciphers";
const DESCRIPTORS: &[u8] = b"member descriptors";
const DIRECT_WRITES: &[u8] = b"direct writes";
/// Marks are below this: eleven bits of an address.
const MARK_END: u16 = 1 << 11;

/// The parts of packets that a job's key protects. Each level has those of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Heads have tags.
    Heads,
    /// The sums of payloads have keys.
    Payloads,
    /// Payloads are encrypted.
    Encrypted,
}

/// The secret that all processes of a job share. Wiped from memory when dropped.
pub struct JobKey {
    bytes: Zeroizing<[u8; JOB_KEY_LEN]>,
    level: Level,
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

impl JobKey {
    /// The key with these bytes, which have to be random.
    pub fn new(bytes: [u8; JOB_KEY_LEN]) -> JobKey {
        JobKey {
            bytes: Zeroizing::new(bytes),
            level: Level::Heads,
        }
    }

    /// The key that follows for jobs at this level. It is another one in all respects, so that no
    /// process believes one that protects less.
    pub fn at(&self, level: Level) -> JobKey {
        let purpose = match level {
            Level::Heads => return JobKey::new(*self.bytes),
            Level::Payloads => WITH_PAYLOADS,
            Level::Encrypted => WITH_ENCRYPTION,
        };
        let mut key = JobKey::new([0; JOB_KEY_LEN]);
        self.derive(purpose, key.bytes.as_mut());
        key.level = level;
        key
    }

    /// The level that the key is for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The key in 64 hexadecimal digits, with blanks around them.
    pub fn from_hex(text: &str) -> Option<JobKey> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * JOB_KEY_LEN {
            return None;
        }
        let mut key = JobKey::new([0; JOB_KEY_LEN]);
        for (byte, pair) in key.bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(key)
    }

    /// The key in 64 hexadecimal digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * JOB_KEY_LEN));
        for byte in self.bytes.iter() {
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
        self.alone(QUESTIONS)
    }

    /// The key of the descriptors from which members make a multicast group.
    pub fn descriptors(&self) -> HeadKey {
        self.alone(DESCRIPTORS)
    }

    /// The key of the heads of direct writes.
    pub(crate) fn direct_writes(&self) -> HeadKey {
        self.alone(DIRECT_WRITES)
    }

    /// The only key of a purpose.
    fn alone(&self, purpose: &[u8]) -> HeadKey {
        let mut bytes = [0; 16];
        self.derive(purpose, &mut bytes);
        let key = HeadKey::of(bytes);
        bytes.zeroize();
        key
    }

    /// The key from which the keys of directions are derived.
    pub(crate) fn heads(&self) -> Hkdf<Sha256> {
        self.root(HEADS)
    }

    /// The key from which the keys of directions' payload sums are derived.
    pub(crate) fn payloads(&self) -> Hkdf<Sha256> {
        self.root(PAYLOADS)
    }

    /// The key from which the keys of directions' ciphers are derived, at the level that has them.
    pub(crate) fn ciphers(&self) -> Option<Hkdf<Sha256>> {
        (self.level == Level::Encrypted).then(|| self.root(CIPHERS))
    }

    /// The key from which those of multicast groups follow.
    pub(crate) fn groups(&self) -> Hkdf<Sha256> {
        self.root(GROUPS)
    }

    /// The key from which those of multicast groups' payload sums follow.
    pub(crate) fn group_payloads(&self) -> Hkdf<Sha256> {
        self.root(GROUP_PAYLOADS)
    }

    /// The key from which those of multicast groups' ciphers follow, at the level that has them.
    pub(crate) fn group_ciphers(&self) -> Option<Hkdf<Sha256>> {
        (self.level == Level::Encrypted).then(|| self.root(GROUP_CIPHERS))
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
        let keys = Hkdf::<Sha256>::new(Some(SALT), self.bytes.as_ref());
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
        let key = JobKey::new([7; JOB_KEY_LEN]);
        assert_ne!(key.descriptors().tag(b"who"), tag(7));
    }

    /// The derivation is part of the protocol.
    #[test]
    fn each_level_has_another_key() {
        let key = JobKey::new([7; JOB_KEY_LEN]);
        let levels = [Level::Heads, Level::Payloads, Level::Encrypted];
        let [heads, payloads, encrypted] = levels.map(|level| {
            let key = key.at(level);
            assert_eq!(key.level(), level);
            key
        });
        assert_eq!(*heads.to_hex(), *key.to_hex());
        // Computed by another program.
        assert_eq!(payloads.questions().tag(b"who"), 0xc835_cb79_2cce_29e3);
        assert_eq!(payloads.mark(), 2046);
        assert_eq!(encrypted.questions().tag(b"who"), 0x2a29_de87_1544_4e84);
        assert!(encrypted.ciphers().is_some() && payloads.ciphers().is_none());
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
