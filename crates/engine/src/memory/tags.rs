//! Tags of packets, keys of their sums, and ciphers: those of a packet's direction, and the end of
//! a packet that is ready to leave (docs/design/security.md).

use marline_auth::{CipherKey, Direction, HeadKey, HeadKeys, PacketKeys, PayloadKey};
use marline_checksum::{crc32c, Algorithm, Seed, SumKey};
use marline_proto::PeerId;
use marline_wire::{Ends, Header, TaggedHead, TAG_LEN};

/// The direction that a header names.
#[inline]
pub(crate) fn direction_of(header: &Header) -> Direction {
    Direction {
        src_id: header.src_id,
        src_epoch: header.src_epoch,
        dst_id: header.dst_id,
        dst_token: header.dst_token,
    }
}

/// The keys of a packet to `peer`, according to the packet's header; `None`: no tag.
#[inline]
pub(crate) fn keys_to(
    keys: &mut Option<HeadKeys>,
    peer: PeerId,
    packet: &[u8],
) -> Option<PacketKeys> {
    let keys = keys.as_mut()?;
    let ends = Ends::claimed(packet)?;
    let of = Direction {
        src_id: ends.src_id,
        src_epoch: ends.src_epoch,
        dst_id: ends.dst_id,
        dst_token: ends.dst_token,
    };
    Some(keys.to(peer.0, &of))
}

/// The tag of a packet with this head.
#[inline]
pub(crate) fn tag_of(key: HeadKey, head: &TaggedHead<'_>) -> u64 {
    key.packet_tag(head.fixed, head.frames)
}

/// The key of sums by an algorithm that has one.
#[inline]
pub(crate) fn sum_key(key: PayloadKey) -> SumKey {
    SumKey::new(key.bytes())
}

/// The seed of a sum in a packet with these keys.
#[inline]
pub(crate) fn seed_under(keys: Option<&PacketKeys>, number: u64) -> Seed {
    match keys {
        Some(keys) => Seed::keyed(number, sum_key(keys.payloads)),
        None => number.into(),
    }
}

/// The key of the sums in a packet that was admitted. Only a keyed algorithm needs it.
#[inline]
pub(crate) fn sum_key_from(keys: &Option<HeadKeys>, header: &Header) -> SumKey {
    let keyed = header.algorithm == Algorithm::Aegis as u8;
    match keys.as_ref().filter(|_| keyed) {
        Some(keys) => sum_key(keys.payloads_from(header.dst_slot, &direction_of(header))),
        None => SumKey::default(),
    }
}

/// Writes the CRC and the tag of a packet whose checksums are in place. The tag is at its end.
#[inline]
pub(crate) fn seal(packet: &mut [u8], head_len: usize, keys: Option<&PacketKeys>) {
    let crc = crc32c(&packet[4..head_len]);
    packet[..4].copy_from_slice(&crc.to_le_bytes());
    let Some(keys) = keys else { return };
    let tag = tag_of(keys.head, &TaggedHead::of(&packet[..head_len])).to_le_bytes();
    if let Some(end) = packet.last_chunk_mut::<TAG_LEN>() {
        *end = tag;
    }
}

/// Encrypts the payload of a packet that is ready otherwise: the bytes between head and tag. The
/// nonce is the part of the head that has path and number, which no other packet under this key
/// has.
#[inline]
pub(crate) fn encrypt(packet: &mut [u8], head_len: usize, cipher: CipherKey) {
    let (head, rest) = packet.split_at_mut(head_len);
    let nonce = TaggedHead::of(head).fixed;
    let payload = rest.len().saturating_sub(TAG_LEN);
    cipher.apply(nonce, &mut rest[..payload]);
}
