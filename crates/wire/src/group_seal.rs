//! Number, destination and tag of a group's packet that proves the job's key.
//!
//! ```text
//! 40  u48 number of the packet among all packets of its sender to the group
//! 46  u16 destination: a member number, or all ones for a multicast packet
//! 48  words, chunk and payload as without a tag, then the tag: the last 8 bytes
//! ```
//!
//! The number shows repeated packets, the destination packets to another member: all members have
//! the same key.

use crate::header::{u64_at, TAG_LEN};

/// Bytes of number and destination, after the head's common fields.
pub const GROUP_SEAL_LEN: usize = 8;
/// Bytes that a tag adds to a group's packet.
pub const GROUP_TAG_BYTES: usize = GROUP_SEAL_LEN + TAG_LEN;
/// Destination of a multicast packet.
pub const TO_ALL: u16 = u16::MAX;
/// Bits of a packet number: two years at 4 M packets/s.
const NUMBER_BITS: u32 = 48;

/// Number and destination of a tagged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSeal {
    /// Number of the packet among all packets of its sender to the group; of 48 bits.
    pub number: u64,
    /// The member number of the destination, or [`TO_ALL`].
    pub to: u16,
}

impl GroupSeal {
    /// Bytes after the head's common fields in a packet that has a tag, or has none.
    pub(crate) fn len(tagged: bool) -> usize {
        GROUP_SEAL_LEN * usize::from(tagged)
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        let word = self.number & ((1 << NUMBER_BITS) - 1) | u64::from(self.to) << NUMBER_BITS;
        out[..GROUP_SEAL_LEN].copy_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> GroupSeal {
        let word = u64_at(bytes, 0);
        GroupSeal {
            number: word & ((1 << NUMBER_BITS) - 1),
            to: (word >> NUMBER_BITS) as u16,
        }
    }
}
