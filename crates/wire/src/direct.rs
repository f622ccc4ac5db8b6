//! The head before the bytes of a direct write ([`DirectHead`]), which is sent as datagrams whose
//! bytes the receiving kernel puts in place.
//!
//! ```text
//!  0  u32 check  4  u8 version (not that of a packet)   5  u8 extra lines
//!                 6  u16 bytes of a packet, or 0
//!  8  u64 key    16  u64 offset                         24  u32 len                  28  u32 0
//! 32  the packet, which notifies of an earlier write; zeros to the next line of 64
//!     then `len` bytes for the registered memory
//! ```
//!
//! A tag has its low half in the place of the check, its high half in that of the zero.

use crate::header::{u32_at, u64_at};

/// Bytes of the head.
pub const DIRECT_HEAD_LEN: usize = 32;
/// Place of the fields that check or tag covers.
const COVERED: core::ops::Range<usize> = 4..28;
/// Bytes of a cache line.
const LINE: usize = 64;
/// The version of this head, at the offset of a packet's version, which never has the highest bit.
/// Another head gets another number of [`crate::RailWrites`], which rails announce.
const DIRECT_VERSION: u8 = 0x84;

/// The head of a direct write. The head only has an effect with a key that its sender was told, and
/// where no byte has landed yet; the sum of the bytes comes in a packet. So the check need only
/// detect damage by a broken rail: wrong bytes, or bytes from the middle of other data. In a job
/// with a key a tag takes the check's place (docs/design/security.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectHead {
    /// The receiver's key ([`crate::Rkey`]).
    pub key: u64,
    /// Offset in the registered memory, in bytes.
    pub offset: u64,
    /// Bytes for the registered memory.
    pub len: u32,
    /// Length of the packet before the bytes.
    pub packet_len: u16,
    /// Extra lines of 64 bytes before those bytes. They make the last datagram shorter than the
    /// others, by which receivers (GRO) recognise the end.
    pub spare: u8,
}

impl DirectHead {
    /// Encodes the head.
    pub fn write(&self) -> [u8; DIRECT_HEAD_LEN] {
        self.write_with(|_| u64::from(self.check()))
    }

    /// Encodes the head with the tag that `tag` gives for the fields.
    pub fn write_tagged(&self, tag: impl Fn(&[u8]) -> u64) -> [u8; DIRECT_HEAD_LEN] {
        self.write_with(tag)
    }

    fn write_with(&self, check: impl Fn(&[u8]) -> u64) -> [u8; DIRECT_HEAD_LEN] {
        let mut out = [0; DIRECT_HEAD_LEN];
        out[4] = DIRECT_VERSION;
        out[5] = self.spare;
        out[6..8].copy_from_slice(&self.packet_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.key.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..28].copy_from_slice(&self.len.to_le_bytes());
        let check = check(&out[COVERED]).to_le_bytes();
        out[..4].copy_from_slice(&check[..4]);
        out[28..].copy_from_slice(&check[4..]);
        out
    }

    /// The head at the start of `datagram`, if it is a direct write.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<DirectHead> {
        let (head, bytes) = DirectHead::claimed(datagram)?;
        (head.write() == *bytes).then_some(head)
    }

    /// The head at the start of `datagram`, if it is a direct write with the tag that `tag` gives
    /// for its fields.
    #[inline]
    pub fn parse_tagged(datagram: &[u8], tag: impl Fn(&[u8]) -> u64) -> Option<DirectHead> {
        let (head, bytes) = DirectHead::claimed(datagram)?;
        (head.write_tagged(tag) == *bytes).then_some(head)
    }

    /// The fields of what claims to be a direct write, and its head.
    #[inline]
    fn claimed(datagram: &[u8]) -> Option<(DirectHead, &[u8; DIRECT_HEAD_LEN])> {
        let bytes: &[u8; DIRECT_HEAD_LEN] = datagram.first_chunk()?;
        if bytes[4] != DIRECT_VERSION {
            return None;
        }
        let head = DirectHead {
            key: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            len: u32_at(bytes, 24),
            packet_len: u16::from_le_bytes([bytes[6], bytes[7]]),
            spare: bytes[5],
        };
        Some((head, bytes))
    }

    /// Bytes before those for the memory: whole cache lines, so that the kernel copies from line to
    /// line if the destination is aligned.
    pub fn lead(&self) -> usize {
        let needed = (DIRECT_HEAD_LEN + self.packet_len as usize).next_multiple_of(LINE);
        needed + LINE * self.spare as usize
    }

    /// Bytes of the whole write.
    pub fn total(&self) -> usize {
        self.lead() + self.len as usize
    }

    /// The packet in a datagram with this head; empty if there is none or it is incomplete.
    pub fn packet<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        let end = DIRECT_HEAD_LEN + self.packet_len as usize;
        datagram.get(DIRECT_HEAD_LEN..end).unwrap_or(&[])
    }

    /// A hash in which each bit of the fields affects about half of the bits: multiplication by an
    /// odd number (2^64 / golden ratio) propagates differences upwards, shifts downwards.
    fn check(&self) -> u32 {
        let mut mixed = 0u64;
        for field in [
            self.key,
            self.offset,
            (self.len as u64) << 24 | (self.spare as u64) << 16 | self.packet_len as u64,
        ] {
            mixed = (mixed ^ field).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^= mixed >> 32;
        }
        mixed as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn what_is_written_is_read(key: u64, offset: u64, len: u32, packet_len: u16, spare: u8) {
            let head = DirectHead { key, offset, len, packet_len, spare };
            prop_assert_eq!(DirectHead::parse(&head.write()), Some(head));
        }

        #[test]
        fn flipped_bits_are_found(key: u64, offset: u64, a in 0usize..256, b in 0usize..256) {
            let head = DirectHead { key, offset, len: 63_616, packet_len: 88, spare: 0 };
            let mut bytes = head.write();
            bytes[a / 8] ^= 1 << (a % 8);
            prop_assert_eq!(DirectHead::parse(&bytes), None);
            bytes[b / 8] ^= 1 << (b % 8);
            prop_assert_eq!(DirectHead::parse(&bytes).is_some(), a == b);
        }

        #[test]
        fn anything_may_come(bytes: Vec<u8>) {
            if let Some(head) = DirectHead::parse(&bytes) {
                prop_assert_eq!(&head.write()[..], &bytes[..DIRECT_HEAD_LEN]);
            }
        }
    }

    /// A keyed check: any function of the fields and a secret.
    fn tag(secret: u64) -> impl Fn(&[u8]) -> u64 {
        move |fields| {
            let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            fields.iter().fold(secret, mix)
        }
    }

    #[test]
    fn a_tag_takes_the_place_of_the_check() {
        let head = DirectHead {
            key: 1,
            offset: 2,
            len: 3,
            packet_len: 4,
            spare: 5,
        };
        let bytes = head.write_tagged(tag(7));
        assert_eq!(DirectHead::parse_tagged(&bytes, tag(7)), Some(head));
        assert_eq!(DirectHead::parse_tagged(&bytes, tag(8)), None);
        assert_eq!(DirectHead::parse(&bytes), None);
        assert_eq!(DirectHead::parse_tagged(&head.write(), tag(7)), None);
        for bit in 0..8 * DIRECT_HEAD_LEN {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DirectHead::parse_tagged(&other, tag(7)), None, "{bit}");
        }
    }

    #[test]
    fn no_packet_is_read_as_a_direct_write() {
        let head = DirectHead {
            key: 1,
            offset: 2,
            len: 3,
            packet_len: 4,
            spare: 0,
        };
        assert!(crate::Packet::parse(&head.write(), |_| 0).is_err());
    }
}
