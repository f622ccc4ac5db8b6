//! Tags of a group's packets in a job with a key (docs/design/security.md).

use marline_auth::{CipherKey, GroupKey, HeadKey};
use marline_proto::group::To;
use marline_wire::{GroupPacket, GroupSeal, TAG_LEN, TO_ALL};

/// The key of a group, and the number of the next packet to it.
pub(crate) struct GroupSealer {
    key: GroupKey,
    next: u64,
}

impl GroupSealer {
    pub(crate) fn new(key: GroupKey) -> GroupSealer {
        GroupSealer { key, next: 0 }
    }

    /// The key for checking tags.
    pub(crate) fn key(&self) -> HeadKey {
        self.key.head_key()
    }

    /// The cipher of payloads, if they are encrypted.
    pub(crate) fn cipher(&self) -> Option<CipherKey> {
        self.key.cipher()
    }

    /// Number and destination of the next packet. Numbers never repeat.
    pub(crate) fn seal(&mut self, to: To) -> GroupSeal {
        let number = self.next;
        self.next += 1;
        let to = match to {
            To::All { .. } => TO_ALL,
            To::Member(member) => member,
        };
        GroupSeal { number, to }
    }

    /// The tag over a head.
    pub(crate) fn tag(&self, head: &[u8]) -> [u8; TAG_LEN] {
        self.key().tag(&head[4..]).to_le_bytes()
    }
}

/// The nonce of a packet's payload: no other packet to the group has the same sender and number.
pub(crate) fn nonce_of(sender: u64, seal: &GroupSeal) -> [u64; 2] {
    [seal.number, sender]
}

/// Returns whether a packet has the tag that the group's key demands, or none where there is no
/// key.
#[inline]
pub(crate) fn is_believed(key: Option<&HeadKey>, packet: &GroupPacket<'_>) -> bool {
    match (key, packet.tag()) {
        (None, None) => true,
        (Some(key), Some(tag)) => key.is_tag(packet.checked_head(), tag),
        _ => false,
    }
}
