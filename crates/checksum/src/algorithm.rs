//! The algorithms by number and name.

use std::fmt;
use std::str::FromStr;

/// A payload checksum algorithm; packet headers contain the number.
///
/// `docs/checksums.md` states what each algorithm detects, with sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// No payload checksum.
    None = 0,
    /// CRC-64/NVME: used before two peers have agreed on an algorithm, and the default without the
    /// carry-less multiplication of x86-64.
    #[default]
    Crc64Nvme = 1,
    /// CRC-32C (Castagnoli).
    Crc32c = 2,
    /// XXH3, 64 bits.
    Xxh3 = 3,
    /// Fletcher's checksum over 32-bit words, 64 bits.
    Fletcher64 = 5,
    /// Adler-32 (RFC 1950).
    Adler32 = 6,
    /// FNV-1a over 64-bit words, 64 bits: called FNV-1a by the papers' library.
    Fnv1a = 7,
    /// FNV-1a as published, byte by byte, 64 bits.
    Fnv1aBytes = 8,
    /// MurmurHash2A, 32 bits.
    Murmur2a = 9,
    /// Hsieh's SuperFastHash, 32 bits.
    SuperFast = 10,
    /// Jenkins' one-at-a-time hash, 32 bits.
    Jenkins = 11,
    /// Knuth's multiplicative hash over 32-bit words.
    Knuth = 12,
    /// Sum of 32-bit words modulo 2^32.
    Sum32 = 13,
    /// Exclusive or of 32-bit words.
    Xor32 = 14,
    /// One AES round per 16 bytes over 16 lanes: the fast class for blocks in cache. (Number 4 was
    /// an earlier form and stays unused: a different sum under the same number would look like
    /// damage.)
    AesLanes = 15,
    /// CRC-64 of products of pairs of words: one multiplication per 16 bytes instead of the CRC's
    /// two. An error that the CRC detects is detected by all but one in 2^64 choices of the
    /// constants.
    Crc64Nh = 16,
    /// AEGIS-128X2 as a message authentication code, 64 bits: the only keyed algorithm, for jobs
    /// with a key.
    Aegis = 17,
}

/// The reliability of a matching sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strength {
    /// Misses common patterns (two flips, swapped words) or mixes too few bits: never a default,
    /// only for comparison.
    Weak,
    /// Misses one error in 2^32 or fewer, but without a proof for fragments of our lengths, or with
    /// a proof for 32 bits only.
    Medium,
    /// 64 bits, proved to detect every error of few bits and every burst of up to 64 bits, either
    /// always or for all but one in 2^64 choices of the constants.
    Strong,
    /// 64 bits of a message authentication code: without the key, another payload has the same sum
    /// once in 2^64 attempts, whatever was chosen and seen before.
    Keyed,
}

/// Each algorithm with its name and strength, in the order in which users see them.
const TABLE: [(Algorithm, &str, Strength); 17] = [
    (Algorithm::None, "none", Strength::Weak),
    (Algorithm::Aegis, "aegis-128x2", Strength::Keyed),
    (Algorithm::Crc64Nvme, "crc64-nvme", Strength::Strong),
    (Algorithm::Crc64Nh, "crc64-nh", Strength::Strong),
    (Algorithm::Crc32c, "crc32c", Strength::Medium),
    (Algorithm::Xxh3, "xxh3", Strength::Medium),
    (Algorithm::AesLanes, "aes-lanes", Strength::Medium),
    (Algorithm::Fletcher64, "fletcher64", Strength::Weak),
    (Algorithm::Adler32, "adler32", Strength::Weak),
    (Algorithm::Fnv1a, "fnv1a", Strength::Weak),
    (Algorithm::Fnv1aBytes, "fnv1a-bytes", Strength::Weak),
    (Algorithm::Murmur2a, "murmur2a", Strength::Weak),
    (Algorithm::SuperFast, "superfast", Strength::Weak),
    (Algorithm::Jenkins, "jenkins", Strength::Weak),
    (Algorithm::Knuth, "knuth", Strength::Weak),
    (Algorithm::Sum32, "sum32", Strength::Weak),
    (Algorithm::Xor32, "xor32", Strength::Weak),
];

/// Marks numbers without an algorithm.
const UNUSED: u8 = u8::MAX;

/// The row in [`TABLE`] of each number.
const ROWS: [u8; 18] = {
    let mut rows = [UNUSED; 18];
    let mut i = 0;
    while i < TABLE.len() {
        rows[TABLE[i].0 as usize] = i as u8;
        i += 1;
    }
    rows
};

impl Algorithm {
    /// Every algorithm, [`Algorithm::None`] first.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        TABLE.iter().map(|row| row.0)
    }

    /// The numbers of all algorithms, the most trusted first: of two peers' requests, the one that
    /// is earlier here is used. Peers of different versions must agree on the order of the
    /// algorithms that both know, so the order is by strength, then by number, with `none` last.
    pub const BY_TRUST: &'static [u8] =
        &[17, 1, 16, 2, 3, 15, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0];

    /// [`Algorithm::BY_TRUST`] without the keyed algorithm: those of a process without a key.
    pub const BY_TRUST_UNKEYED: &'static [u8] = Algorithm::BY_TRUST.split_at(1).1;

    /// The numbers of the algorithms whose sums change when equally long parts of the data are
    /// exchanged, the most trusted first. Only these suit data that the network cuts into pieces
    /// without heads, since the pieces may be rejoined in another order.
    pub const SEEING_ORDER: &'static [u8] = &[17, 1, 16, 2, 3, 15, 5, 6, 7, 8, 9, 10, 11, 12];

    /// Returns whether the algorithm is in [`Algorithm::SEEING_ORDER`].
    pub fn sees_order(self) -> bool {
        Algorithm::SEEING_ORDER.contains(&(self as u8))
    }

    /// Returns whether the sum depends on a key ([`crate::Seed::keyed`]).
    pub fn is_keyed(self) -> bool {
        self.strength() == Strength::Keyed
    }

    /// The algorithm with this number in a packet header.
    #[inline]
    pub fn from_u8(n: u8) -> Option<Algorithm> {
        ROWS.get(n as usize)
            .filter(|row| **row != UNUSED)
            .map(|row| TABLE[*row as usize].0)
    }

    fn row(self) -> &'static (Algorithm, &'static str, Strength) {
        &TABLE[ROWS[self as usize] as usize]
    }

    /// The name that [`FromStr`] reads.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns whether there are kernels that stream and sum in one loop.
    pub(crate) fn is_streamed(self) -> bool {
        matches!(
            self,
            Algorithm::Crc64Nvme | Algorithm::Crc32c | Algorithm::Crc64Nh
        )
    }

    /// The reliability of a matching sum.
    pub fn strength(self) -> Strength {
        self.row().2
    }

    /// Number of significant bits in the sum.
    pub fn bits(self) -> u32 {
        match self {
            Algorithm::None => 0,
            Algorithm::Crc64Nvme | Algorithm::Crc64Nh | Algorithm::Aegis => 64,
            Algorithm::Xxh3 | Algorithm::AesLanes | Algorithm::Fletcher64 | Algorithm::Fnv1a => 64,
            Algorithm::Fnv1aBytes => 64,
            _ => 32,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name without an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown checksum algorithm \"{}\"; the names are",
            self.0
        )?;
        for (i, row) in TABLE.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, row.1)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        TABLE
            .iter()
            .find(|row| row.1.eq_ignore_ascii_case(name))
            .map(|row| row.0)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for a in Algorithm::all() {
            assert_eq!(Algorithm::from_u8(a as u8), Some(a));
            assert_eq!(a.name().parse(), Ok(a));
        }
        let known = (0..=255).filter(|n| Algorithm::from_u8(*n).is_some());
        assert_eq!(known.count(), Algorithm::all().count());
        assert_eq!(Algorithm::from_u8(4), None, "its sums are no longer made");
    }

    #[test]
    fn trust_is_by_strength_then_by_number() {
        let mut sorted: Vec<_> = Algorithm::all().collect();
        sorted.sort_by_key(|a| (*a == Algorithm::None, std::cmp::Reverse(a.strength()), *a));
        let sorted: Vec<u8> = sorted.into_iter().map(|a| a as u8).collect();
        assert_eq!(Algorithm::BY_TRUST, sorted);
        assert!(
            sorted.iter().all(|n| *n < 32),
            "HELLO tells them by a mask of 32 bits"
        );
    }

    #[test]
    fn exactly_the_first_is_keyed() {
        let unkeyed = Algorithm::BY_TRUST_UNKEYED;
        for a in Algorithm::all() {
            assert_eq!(a.is_keyed(), !unkeyed.contains(&(a as u8)), "{a}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_known() {
        let error = "md5".parse::<Algorithm>().unwrap_err().to_string();
        for a in Algorithm::all() {
            assert!(error.contains(a.name()), "{error}");
        }
    }

    #[test]
    fn the_default_is_strong() {
        assert_eq!(Algorithm::default().strength(), Strength::Strong);
    }
}
