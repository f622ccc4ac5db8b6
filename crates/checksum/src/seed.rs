//! The start of a sum: a number, and for keyed algorithms a key.

use std::fmt;

/// Key of a keyed algorithm.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SumKey([u8; SumKey::LEN]);

impl SumKey {
    /// Bytes of a key.
    pub const LEN: usize = 16;

    /// The key with these bytes, which have to be secret and uniformly random.
    pub fn new(bytes: [u8; SumKey::LEN]) -> SumKey {
        SumKey(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; SumKey::LEN] {
        &self.0
    }
}

impl fmt::Debug for SumKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SumKey(secret)")
    }
}

/// The start of a sum. A number alone is a seed with the key 0, under which a keyed algorithm gives
/// its published values and protects nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    pub(crate) number: u64,
    pub(crate) key: SumKey,
}

impl Seed {
    /// The seed with this number and key. Algorithms without a key ignore the key.
    #[inline]
    pub fn keyed(number: u64, key: SumKey) -> Seed {
        Seed { number, key }
    }

    /// The number.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl From<u64> for Seed {
    #[inline]
    fn from(number: u64) -> Seed {
        let key = SumKey::default();
        Seed { number, key }
    }
}
