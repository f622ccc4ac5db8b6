//! The framing of packets in a TCP stream.
//!
//! ```text
//!  0 the word of frame_word.rs    8 the same eight bytes, inverted
//! 16 bytes, by kind:
//!      handshake  of the connection (handshake.rs)
//!      packets    one or more packets, back to back
//!      write      u64 rkey, u64 offset, both inverted, then the bytes
//!      rest       nothing: the sender sends nothing more here, and asks for the same
//!      join       u64 token of a connection of the receiver's, which shall send here instead
//! ```
//!
//! TCP's checksum of 16 bits misses some errors, so the critical fields are repeated inverted. A
//! contradictory head ends the connection, since the start of the next frame is unknown; data in
//! flight is sent again on the next connection or another rail.

use crate::frame_word::{put_words, word_at, FrameWord};
use marline_wire::BLOCK_BYTES;

/// Bytes of the head.
pub(super) const HEAD_LEN: usize = 16;
/// Bytes that state the destination of a write.
pub(super) const PLACE_LEN: usize = 32;
/// Bytes of a join frame's body.
pub(super) const JOIN_LEN: usize = 8;
/// Largest body in bytes: one batch, or one write of 64 KiB in whole blocks with its destination.
pub(super) const FRAME_MAX: usize =
    (64usize << 10).next_multiple_of(BLOCK_BYTES as usize) + PLACE_LEN;
/// Version of the framing, in every head.
const MAGIC: u8 = 0xa3;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first frame of a connection in either direction: the handshake.
    Handshake,
    /// Packets.
    Packets,
    /// Bytes for registered memory.
    Write,
    /// The last frame of a connection before its idle eviction.
    Eviction,
    /// Both ends have connected, and this connection shall serve both.
    Join,
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Bytes of the body.
    pub(super) len: usize,
    /// Length of each packet but the last.
    pub(super) segment: usize,
}

impl Head {
    /// Encodes the head.
    #[inline]
    pub(super) fn write(&self) -> [u8; HEAD_LEN] {
        let kind = match self.kind {
            Kind::Handshake => 1,
            Kind::Packets => 2,
            Kind::Write => 3,
            Kind::Eviction => 4,
            Kind::Join => 5,
        };
        let word = FrameWord {
            kind,
            len: self.len,
            segment: self.segment,
        };
        let word = word.pack(MAGIC);
        put_words(&[word, !word])
    }

    /// Reads a head; `None` if it is invalid.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Head> {
        let word = FrameWord::unpack(twice(bytes.get(..HEAD_LEN)?)?, MAGIC)?;
        let kind = match word.kind {
            1 => Kind::Handshake,
            2 => Kind::Packets,
            3 => Kind::Write,
            4 => Kind::Eviction,
            5 => Kind::Join,
            _ => return None,
        };
        let head = Head {
            kind,
            len: word.len,
            segment: word.segment,
        };
        let lens = match kind {
            Kind::Write => PLACE_LEN + 1..=FRAME_MAX,
            Kind::Packets | Kind::Handshake => 1..=FRAME_MAX,
            Kind::Eviction => 0..=0,
            Kind::Join => JOIN_LEN..=JOIN_LEN,
        };
        let fits = lens.contains(&head.len);
        let cut = kind != Kind::Packets || head.segment > 0;
        (fits && cut).then_some(head)
    }
}

/// The destination of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct To {
    /// The receiver's key.
    pub(super) rkey: u64,
    /// Offset in the registered memory, in bytes.
    pub(super) offset: u64,
}

impl To {
    pub(super) fn write(&self) -> [u8; PLACE_LEN] {
        put_words(&[self.rkey, !self.rkey, self.offset, !self.offset])
    }

    pub(super) fn read(bytes: &[u8]) -> Option<To> {
        Some(To {
            rkey: twice(bytes.get(..16)?)?,
            offset: twice(bytes.get(16..PLACE_LEN)?)?,
        })
    }
}

/// Reads a word followed by its inverse; `None` if they do not match.
#[inline]
fn twice(bytes: &[u8]) -> Option<u64> {
    let (word, inverted) = (word_at(bytes, 0), word_at(bytes, 8));
    (word == !inverted).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_written_and_no_flipped_bit_goes_unnoticed() {
        for (kind, len, segment) in [
            (Kind::Handshake, 24, 0),
            (Kind::Packets, 1, 1),
            (Kind::Packets, 64_000, 1_472),
            (Kind::Write, FRAME_MAX, 0),
            (Kind::Eviction, 0, 0),
        ] {
            let head = Head { kind, len, segment };
            let bytes = head.write();
            assert_eq!(Head::read(&bytes), Some(head));
            for bit in 0..8 * HEAD_LEN {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Head::read(&bad), None, "bit {bit} of {head:?}");
            }
        }
        let long = Head {
            kind: Kind::Packets,
            len: FRAME_MAX + 1,
            segment: 9,
        };
        assert_eq!(Head::read(&long.write()), None);
        assert_eq!(Head::read(&[0; HEAD_LEN - 1]), None);
    }

    #[test]
    fn places_are_read_as_written_and_no_flipped_bit_goes_unnoticed() {
        let to = To {
            rkey: 0x0123_4567_89ab_cdef,
            offset: 1 << 40,
        };
        let bytes = to.write();
        assert_eq!(To::read(&bytes), Some(to));
        for bit in 0..8 * PLACE_LEN {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(To::read(&bad), None);
        }
    }
}
