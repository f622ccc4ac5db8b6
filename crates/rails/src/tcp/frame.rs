//! How packets are framed in a TCP stream.
//!
//! ```text
//!  0 the word of frame_word.rs    8 the same eight bytes, inverted
//! 16 bytes, by kind:
//!      greeting   whose connection this is (greeting.rs)
//!      packets    one or more packets, back to back
//!      write      u64 rkey, u64 offset, both inverted, then the bytes
//!      rest       nothing: the sender sends no more here, and asks for the same
//!      join       u64 token of a connection of the receiver's, which is to send here instead
//! ```
//!
//! TCP's sum of 16 bits lets some errors through, so that what frames depend on stands twice. A
//! head that contradicts itself ends the connection: where the next one begins nobody knows any
//! more, and what was on its way is sent again on the next connection or another rail.

use crate::frame_word::{put_words, word_at, FrameWord};
use marline_wire::GRANULE;

/// Bytes of the head.
pub(super) const HEAD_LEN: usize = 16;
/// Bytes that name the place of a write.
pub(super) const PLACE_LEN: usize = 32;
/// Bytes of a join.
pub(super) const JOIN_LEN: usize = 8;
/// Largest frame in bytes behind its head: one batch, or one write of 64 KiB in whole granules with
/// its place.
pub(super) const FRAME_MAX: usize = (64usize << 10).next_multiple_of(GRANULE as usize) + PLACE_LEN;
/// Version of the framing, in every head.
const MAGIC: u8 = 0xa3;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first of a connection, in either direction: which rail this is.
    Greeting,
    /// Packets.
    Packets,
    /// Bytes for registered memory.
    Write,
    /// The last of a connection that is closed because others are needed more.
    Rest,
    /// Both ends have made a connection, and this one is to serve both.
    Join,
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Bytes behind the head.
    pub(super) len: usize,
    /// Length of each packet but the last.
    pub(super) segment: usize,
}

impl Head {
    /// The head as bytes.
    #[inline]
    pub(super) fn write(&self) -> [u8; HEAD_LEN] {
        let kind = match self.kind {
            Kind::Greeting => 1,
            Kind::Packets => 2,
            Kind::Write => 3,
            Kind::Rest => 4,
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

    /// The head in the first bytes, if it is one.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Head> {
        let word = FrameWord::unpack(twice(bytes.get(..HEAD_LEN)?)?, MAGIC)?;
        let kind = match word.kind {
            1 => Kind::Greeting,
            2 => Kind::Packets,
            3 => Kind::Write,
            4 => Kind::Rest,
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
            Kind::Packets | Kind::Greeting => 1..=FRAME_MAX,
            Kind::Rest => 0..=0,
            Kind::Join => JOIN_LEN..=JOIN_LEN,
        };
        let fits = lens.contains(&head.len);
        let cut = kind != Kind::Packets || head.segment > 0;
        (fits && cut).then_some(head)
    }
}

/// The place of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct To {
    /// The receiver's key.
    pub(super) rkey: u64,
    /// Offset in the memory that it opens, in bytes.
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

/// The word that stands in 16 bytes as it is and inverted.
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
            (Kind::Greeting, 24, 0),
            (Kind::Packets, 1, 1),
            (Kind::Packets, 64_000, 1_472),
            (Kind::Write, FRAME_MAX, 0),
            (Kind::Rest, 0, 0),
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
