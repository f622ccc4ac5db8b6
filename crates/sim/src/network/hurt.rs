//! Damage to remote writes.

use crate::base::rng::Rng;
use crate::network::sums::replace;

/// Bytes lost together between adapter and memory.
const LINE: usize = 64;

/// Damage to the bytes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteDamage {
    /// Nothing is damaged.
    Whole,
    /// Some bits flip.
    Flips,
    /// Others with the same sum, if that is a CRC without a key.
    Replaced,
    /// One cache line keeps its old contents.
    Line,
    /// Only this many bytes land.
    Upto(usize),
}

/// Passes the parts of a write that land to `put`, each with its offset.
pub(crate) fn put(
    bytes: &[u8],
    hurt: WriteDamage,
    rng: &mut Rng,
    mut to: impl FnMut(usize, &[u8]) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    match hurt {
        WriteDamage::Whole => to(0, bytes),
        WriteDamage::Upto(n) => to(0, &bytes[..n.min(bytes.len())]),
        WriteDamage::Line => {
            let line = rng.below(bytes.len().div_ceil(LINE) as u64) as usize * LINE;
            let after = (line + LINE).min(bytes.len());
            to(0, &bytes[..line])?;
            to(after, &bytes[after..])
        }
        WriteDamage::Replaced => {
            let mut other = bytes.to_vec();
            replace(&mut other, rng);
            to(0, &other)
        }
        WriteDamage::Flips => {
            let mut wrong = bytes.to_vec();
            for _ in 0..rng.pick(&[1, 1, 2, 8]) {
                wrong[rng.below(bytes.len() as u64) as usize] ^= 1 << rng.below(8);
            }
            to(0, &wrong)
        }
    }
}
