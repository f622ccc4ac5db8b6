//! Damage to packets on their way, and packets that are not from whom they say.

use crate::base::rng::Rng;
use marline_checksum::crc32c;
use marline_wire::Question;

/// Damage that the network did to one copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing.
    None,
    /// A bit of the head flips.
    Head,
    /// A bit behind the head flips.
    Payload,
    /// The end is missing.
    Truncated,
    /// Whole, but not from whom it says.
    Forged,
}

/// Damages a packet with a head of so many bytes.
pub(crate) fn hurt(bytes: &mut Vec<u8>, head: usize, damage: Damage, rng: &mut Rng) {
    let (from, to) = match damage {
        Damage::None => return,
        Damage::Forged => return forge(bytes, head, rng),
        Damage::Truncated => return bytes.truncate(rng.below(bytes.len() as u64) as usize),
        Damage::Head => (0, head),
        Damage::Payload if head < bytes.len() => (head, bytes.len()),
        Damage::Payload => (0, head),
    };
    for _ in 0..rng.pick(&[1, 1, 2, 8]) {
        let at = rng.range(from as u64, to as u64 - 1) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }
}

/// Somebody else's packet: for another endpoint or another life of it, or of another life of its
/// sender, whole and with the right sums; or no packet at all.
fn forge(bytes: &mut [u8], head: usize, rng: &mut Rng) {
    let field = match rng.below(8) {
        0..=3 => 16..20, // the token
        4 => 8..16,      // whom it is for
        5 => 32..36,     // the epoch of its sender
        6 => 4..5,       // the version
        _ => return bytes.iter_mut().for_each(|b| *b = rng.next() as u8),
    };
    let at = field.start + rng.below(field.len() as u64) as usize;
    bytes[at] ^= 1 << rng.below(8);
    let seal = crc32c(&bytes[4..head]);
    bytes[..4].copy_from_slice(&seal.to_le_bytes());
}

/// The socket that a packet of an endpoint came from: a question comes from another.
pub(crate) fn socket_of(from: u32, bytes: &[u8]) -> u32 {
    match Question::claimed(bytes) {
        true => !from,
        false => from,
    }
}
