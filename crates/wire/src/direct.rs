//! The head that goes before the bytes of a direct write ([`DirectHead`]). Such a write leaves as
//! datagrams, which the kernel at the other end puts in place.
//!
//! ```text
//!  0  u32 check   4  u8 version (not that of a packet)   5  u8 lines more than needed
//!                 6  u16 bytes of a packet, or 0
//!  8  u64 key    16  u64 offset                         24  u32 len                  28  u32 0
//! 32  the packet, which tells of an earlier one; zeros to the next line of 64
//!     then `len` bytes for the registered memory
//! ```

use crate::header::{u32_at, u64_at, VERSION};

/// Bytes of the head.
pub const DIRECT_HEAD_LEN: usize = 32;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Where packets have their version.
const DIRECT_VERSION: u8 = VERSION | 0x80;

/// The head of a direct write. What it says is of use only with a key that was told to its sender,
/// and where nothing has landed yet; the sum of the bytes comes in a packet. So its check need only
/// find what a broken rail does: other bytes, or bytes of the middle of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectHead {
    /// The receiver's key ([`crate::Rkey`]).
    pub key: u64,
    /// Offset in the registered memory, in bytes.
    pub offset: u64,
    /// Bytes for it.
    pub len: u32,
    /// Bytes of the packet before them.
    pub packet_len: u16,
    /// Lines of 64 bytes before them that are not needed: the last datagram is to be shorter than
    /// the others, by which receivers know it.
    pub spare: u8,
}

impl DirectHead {
    /// The head as bytes.
    pub fn write(&self) -> [u8; DIRECT_HEAD_LEN] {
        let mut out = [0; DIRECT_HEAD_LEN];
        out[..4].copy_from_slice(&self.check().to_le_bytes());
        out[4] = DIRECT_VERSION;
        out[5] = self.spare;
        out[6..8].copy_from_slice(&self.packet_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.key.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..28].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// The head that `datagram` begins with, if it is that of a direct write.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<DirectHead> {
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
        (head.write() == *bytes).then_some(head)
    }

    /// Bytes before those for the memory. They are whole cache lines: where those for the memory
    /// are, too, the kernels' copies go from line to line.
    pub fn lead(&self) -> usize {
        let needed = (DIRECT_HEAD_LEN + self.packet_len as usize).next_multiple_of(LINE);
        needed + LINE * self.spare as usize
    }

    /// Bytes of all of it.
    pub fn total(&self) -> usize {
        self.lead() + self.len as usize
    }

    /// The packet in a datagram that begins with this head; empty where there is none, or not all.
    pub fn packet<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        let end = DIRECT_HEAD_LEN + self.packet_len as usize;
        datagram.get(DIRECT_HEAD_LEN..end).unwrap_or(&[])
    }

    /// Each bit of the fields changes half of it: products with an odd number (2^64 / golden ratio)
    /// move differences up, shifts bring them down.
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

    #[test]
    fn no_packet_begins_like_it() {
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
