//! Versions of the protocol, and the rules by which they meet (docs/design/wire.md).

use core::fmt;

/// The newest version that this library speaks. (Version 4 is the first with the promise that
/// versions are negotiated.)
pub const VERSION: u8 = 4;
/// The oldest version that this library speaks: the one before [`VERSION`], once there are two.
const OLDEST: u8 = 4;
/// The first version that is negotiated. Earlier ones are refused by their digit.
pub(crate) const FIRST_NEGOTIATED: u8 = 4;
/// Bits of the newest version in an address blob, below those of the number of earlier ones.
const NEWEST_BITS: u32 = 5;
/// Most earlier versions in a blob.
const EARLIER_MAX: u8 = 3;
/// Marks a byte of a blob as a range; a digit of earlier versions has not this bit.
const RANGE: u8 = 0x80;

/// The versions that an endpoint speaks: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version.
    pub oldest: u8,
    /// The newest version.
    pub newest: u8,
}

impl Versions {
    /// The versions that this library speaks.
    pub const OURS: Versions = Versions {
        oldest: OLDEST,
        newest: VERSION,
    };
    /// The versions whose packets this library can read: its own, and the next one, which tests
    /// pretend to speak. A node takes packets of the version agreed with their sender only.
    pub(crate) const READABLE: Versions = Versions {
        oldest: OLDEST,
        newest: VERSION + 1,
    };

    /// The range of a single version.
    pub const fn only(version: u8) -> Versions {
        Versions {
            oldest: version,
            newest: version,
        }
    }

    /// Returns whether the range has this version.
    #[inline]
    pub const fn has(self, version: u8) -> bool {
        self.oldest <= version && version <= self.newest
    }

    /// The newest version that both sides speak.
    #[inline]
    pub fn agreed(self, other: Versions) -> Option<u8> {
        let version = self.newest.min(other.newest);
        (self.has(version) && other.has(version)).then_some(version)
    }

    /// The range as a byte of an address blob. A blob names the newest version, at most 31, and
    /// at most [`EARLIER_MAX`] before it.
    pub(crate) const fn encode(self) -> u8 {
        let earlier = match self.newest.saturating_sub(self.oldest) {
            earlier @ 0..EARLIER_MAX => earlier,
            _ => EARLIER_MAX,
        };
        RANGE | earlier << NEWEST_BITS | self.newest & ((1 << NEWEST_BITS) - 1)
    }

    /// The range in a byte of an address blob; `None` if it is none.
    pub(crate) fn decode(byte: u8) -> Option<Versions> {
        let newest = byte & ((1 << NEWEST_BITS) - 1);
        let oldest = newest.checked_sub(byte >> NEWEST_BITS & EARLIER_MAX)?;
        let range = Versions { oldest, newest };
        (byte & RANGE != 0 && range.is_possible()).then_some(range)
    }

    /// Returns whether an address blob can name this range.
    pub fn fit_address(self) -> bool {
        self.is_possible() && Versions::decode(self.encode()) == Some(self)
    }

    /// Returns whether a library may speak this range.
    pub(crate) const fn is_possible(self) -> bool {
        FIRST_NEGOTIATED <= self.oldest && self.oldest <= self.newest
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "{}", self.newest),
            false => write!(f, "{} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const fn range(oldest: u8, newest: u8) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn both_sides_agree_on_the_newest_version_that_both_speak() {
        for (a, b, agreed) in [
            (range(4, 4), range(4, 4), Some(4)),
            (range(4, 4), range(4, 5), Some(4)),
            (range(4, 5), range(5, 6), Some(5)),
            (range(5, 6), range(5, 6), Some(6)),
            (range(4, 9), range(5, 6), Some(6)),
            (range(4, 4), range(5, 6), None),
            (range(4, 5), range(6, 7), None),
        ] {
            assert_eq!((a.agreed(b), b.agreed(a)), (agreed, agreed), "{a} and {b}");
        }
    }

    #[test]
    fn ranges_are_read_from_a_byte_as_written_and_digits_are_none() {
        for newest in FIRST_NEGOTIATED..32 {
            for oldest in newest.saturating_sub(3).max(FIRST_NEGOTIATED)..=newest {
                let versions = range(oldest, newest);
                assert_eq!(Versions::decode(versions.encode()), Some(versions));
            }
        }
        let digits = (0..0x80).map(Versions::decode);
        assert!(digits.into_iter().all(|range| range.is_none()));
        assert_eq!(Versions::decode(RANGE | 3), None, "never negotiated");
    }

    #[test]
    fn ranges_are_named() {
        assert_eq!(Versions::only(4).to_string(), "4");
        assert_eq!(range(4, 5).to_string(), "4 to 5");
    }
}
