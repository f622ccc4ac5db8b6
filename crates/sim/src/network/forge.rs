//! Damage to packets in flight, and forged packets.

use crate::base::rng::Rng;
use marline_checksum::crc32c;
use marline_wire::Question;

/// Damage by the network to one copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// No damage.
    None,
    /// A bit of the head flips.
    Head,
    /// A bit after the head flips.
    Payload,
    /// The end is cut off.
    Truncated,
    /// The packet is intact, but forged.
    Forged,
}

/// Damages a packet with this head length; `keyed`: packets have tags.
pub(crate) fn hurt(
    bytes: &mut Vec<u8>,
    (head, keyed): (usize, bool),
    damage: Damage,
    rng: &mut Rng,
) {
    let (from, to) = match damage {
        Damage::None => return,
        Damage::Forged if keyed && rng.one_in(2) => return forge_head(bytes, head, rng),
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

/// Turns a packet into a packet for another endpoint or an earlier life of this one, or from
/// another life of its sender, with valid sums; or into random bytes.
fn forge(bytes: &mut [u8], head: usize, rng: &mut Rng) {
    let field = match rng.below(8) {
        0..=3 => 16..20, // the token
        4 => 8..16,      // the destination's id
        5 => 32..36,     // the sender's epoch
        6 => 4..5,       // the version
        _ => return bytes.iter_mut().for_each(|b| *b = rng.next() as u8),
    };
    let at = field.start + rng.below(field.len() as u64) as usize;
    bytes[at] ^= 1 << rng.below(8);
    let seal = crc32c(&bytes[4..head]);
    bytes[..4].copy_from_slice(&seal.to_le_bytes());
}

/// Changes any bits of a head and gives it a valid CRC, as any attacker can; only the tag reveals
/// that.
fn forge_head(bytes: &mut [u8], head: usize, rng: &mut Rng) {
    let at = match rng.below(4) {
        0 => 38,                         // the flags, one of which says that there is a tag
        1 => rng.range(40, 45) as usize, // the number
        _ => rng.range(4, head as u64 - 1) as usize,
    };
    bytes[at] ^= 1 << rng.below(8);
    let seal = crc32c(&bytes[4..head]);
    bytes[..4].copy_from_slice(&seal.to_le_bytes());
}

/// The socket from which a packet of an endpoint came: questions have a socket of their own.
pub(crate) fn socket_of(from: u32, bytes: &[u8]) -> u32 {
    match Question::claimed(bytes) {
        true => !from,
        false => from,
    }
}
