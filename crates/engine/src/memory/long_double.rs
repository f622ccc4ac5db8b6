//! C's `long double` on x86: 80 bits in 16 bytes, for which Rust has no type. Computed in software
//! with the processor's exact results.

use rustc_apfloat::ieee::{Single, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert};
use std::cmp::Ordering;
use std::ops::{Add, Mul, Sub};

/// True where `long double` has this format.
pub(crate) const IS_LONG: bool = cfg!(target_arch = "x86_64");

/// Significant bytes; the others are padding.
const USED: usize = 10;

/// A long double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long([u8; 16]);

impl Long {
    pub(crate) fn from_ne_bytes(bytes: [u8; 16]) -> Long {
        Long(bytes)
    }

    pub(crate) fn to_ne_bytes(self) -> [u8; 16] {
        self.0
    }

    pub(crate) fn min(self, other: Long) -> Long {
        Long::of(self.number().min(other.number()))
    }

    pub(crate) fn max(self, other: Long) -> Long {
        Long::of(self.number().max(other.number()))
    }

    fn number(self) -> X87DoubleExtended {
        let mut used = [0; 16];
        used[..USED].copy_from_slice(&self.0[..USED]);
        X87DoubleExtended::from_bits(u128::from_le_bytes(used))
    }

    fn of(number: X87DoubleExtended) -> Long {
        Long(number.to_bits().to_le_bytes())
    }
}

impl From<f32> for Long {
    fn from(value: f32) -> Long {
        let single = Single::from_bits(value.to_bits().into());
        Long::of(single.convert(&mut false).value)
    }
}

impl Add for Long {
    type Output = Long;
    fn add(self, other: Long) -> Long {
        Long::of((self.number() + other.number()).value)
    }
}

impl Sub for Long {
    type Output = Long;
    fn sub(self, other: Long) -> Long {
        Long::of((self.number() - other.number()).value)
    }
}

impl Mul for Long {
    type Output = Long;
    fn mul(self, other: Long) -> Long {
        Long::of((self.number() * other.number()).value)
    }
}

impl PartialEq for Long {
    fn eq(&self, other: &Long) -> bool {
        self.number() == other.number()
    }
}

impl PartialOrd for Long {
    fn partial_cmp(&self, other: &Long) -> Option<Ordering> {
        self.number().partial_cmp(&other.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number with this exponent and significand.
    fn long(exponent: u16, significand: u64) -> Long {
        let mut bytes = [0xaa; 16];
        bytes[..8].copy_from_slice(&significand.to_le_bytes());
        bytes[8..USED].copy_from_slice(&exponent.to_le_bytes());
        Long::from_ne_bytes(bytes)
    }

    #[test]
    fn all_64_bits_of_the_significand_count() {
        let (one, small) = (long(0x3fff, 1 << 63), long(0x3fc0, 1 << 63));
        assert_eq!(one, Long::from(1.0));
        assert_eq!(
            (one + small).number().to_bits(),
            (0x3fff << 64) | (1 << 63) | 1
        );
        assert_eq!((one + small) - one, small);
        assert_eq!(
            (one + small) * Long::from(-2.0) + Long::from(2.0),
            long(0xbfc1, 1 << 63)
        );
        assert!(one < one + small && one.max(small) == one && one.min(small) == small);
        // A tie rounds to even.
        assert_eq!(one + long(0x3fbf, 1 << 63), one);
    }

    #[test]
    fn padding_bytes_are_ignored() {
        let (mut a, b) = ([0x11; 16], Long::from(1.5).to_ne_bytes());
        a[..USED].copy_from_slice(&b[..USED]);
        assert_eq!(Long::from_ne_bytes(a), Long::from_ne_bytes(b));
    }

    #[test]
    fn nan_is_not_the_minimum() {
        let (nan, two) = (Long::from(f32::NAN), Long::from(2.0));
        assert!(nan != nan && nan.min(two) == two && two.max(nan) == two);
        assert!(Long::from(0.0) == Long::from(-0.0));
    }
}
