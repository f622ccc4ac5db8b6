//! Tags of packets: the key of a packet's direction, and the end of a packet that is ready to leave
//! (docs/design/security.md).

use marline_auth::{Direction, HeadKey, HeadKeys};
use marline_checksum::crc32c;
use marline_proto::PeerId;
use marline_wire::{Header, TAG_LEN};

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

/// The key for tagging a packet to `peer`, according to the packet's header; `None`: no tag.
#[inline]
pub(crate) fn key_to(keys: &mut Option<HeadKeys>, peer: PeerId, packet: &[u8]) -> Option<HeadKey> {
    let keys = keys.as_mut()?;
    let header = Header::claimed(packet)?;
    Some(keys.to(peer.0, &direction_of(&header)))
}

/// Writes the CRC and the tag of a packet whose checksums are in place. The tag is at its end.
#[inline]
pub(crate) fn seal(packet: &mut [u8], head_len: usize, key: Option<HeadKey>) {
    let crc = crc32c(&packet[4..head_len]);
    packet[..4].copy_from_slice(&crc.to_le_bytes());
    let Some(key) = key else { return };
    let tag = key.tag(&packet[4..head_len]).to_le_bytes();
    if let Some(end) = packet.last_chunk_mut::<TAG_LEN>() {
        *end = tag;
    }
}
