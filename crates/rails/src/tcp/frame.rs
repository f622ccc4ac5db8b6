//! The framing of packets in a TCP stream.
//!
//! ```text
//!  0 the word of frame_word.rs    8 the same eight bytes, inverted
//! 16 bytes, by kind:
//!      handshake  of the connection (handshake.rs)
//!      packets    one or more packets, back to back
//!      write      u64 rkey, u64 offset, both inverted, then the bytes
//!      eviction   nothing: the sender sends nothing more here, and asks for the same
//!      join       u64 token of a connection of the receiver's, which shall send here instead
//!      challenge  16 random bytes, from an end with the job's key, before anything else
//!      refusal    u64 what differs between both ends; the last frame of a connection
//!      answer     nothing: the acceptor of a handshake has the job's key
//! ```
//!
//! TCP's checksum of 16 bits misses some errors, so the critical fields are repeated inverted. A
//! contradictory head ends the connection, since the start of the next frame is unknown; data in
//! flight is sent again on the next connection or another rail.
//!
//! With a key, a tag stands in place of the first inverted word, of heads and of destinations. It
//! covers the number of the tag, which is not sent, and the word; with a handshake or join its body
//! too, with a destination the offset. Challenge and refusal have no tag.

use super::handshake::HANDSHAKE_MAX;
use crate::frame_word::{put_words, word_at, FrameWord};
use marline_auth::{FrameKey, CHALLENGE_LEN};
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
/// Bytes of a refusal's body.
pub(super) const REFUSAL_LEN: usize = 8;
/// Upper half of the magic in all versions of the framing; the lower half is the version.
const FRAMING: u8 = 0xa0;
/// Version of the framing.
pub(super) const VERSION: u8 = 3;
/// The magic in every head.
pub(super) const MAGIC: u8 = FRAMING | VERSION;

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
    /// The first frame of an end with the job's key.
    Challenge,
    /// The last frame to an end with another key or none.
    Refusal,
    /// The answer to a handshake under the job's key.
    Answer,
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
    #[inline]
    fn word(&self) -> u64 {
        let kind = match self.kind {
            Kind::Handshake => 1,
            Kind::Packets => 2,
            Kind::Write => 3,
            Kind::Eviction => 4,
            Kind::Join => 5,
            Kind::Challenge => 6,
            Kind::Refusal => 7,
            Kind::Answer => 8,
        };
        let word = FrameWord {
            kind,
            len: self.len,
            segment: self.segment,
        };
        word.pack(MAGIC)
    }

    /// Encodes the head without a tag.
    #[inline]
    pub(super) fn write(&self) -> [u8; HEAD_LEN] {
        let word = self.word();
        put_words(&[word, !word])
    }

    /// Encodes the head of the next frame under a key, with the covered part of its body.
    #[inline]
    pub(super) fn seal(&self, key: &FrameKey, body: &[u8]) -> [u8; HEAD_LEN] {
        let word = self.word();
        put_words(&[word, key.tag(word, body)])
    }

    /// Reads a head whose second word is not checked; `None` if it is invalid.
    #[inline]
    pub(super) fn claimed(bytes: &[u8]) -> Option<Head> {
        let word = FrameWord::unpack(word_at(bytes.get(..HEAD_LEN)?, 0), MAGIC)?;
        let kind = match word.kind {
            1 => Kind::Handshake,
            2 => Kind::Packets,
            3 => Kind::Write,
            4 => Kind::Eviction,
            5 => Kind::Join,
            6 => Kind::Challenge,
            7 => Kind::Refusal,
            8 => Kind::Answer,
            _ => return None,
        };
        let head = Head {
            kind,
            len: word.len,
            segment: word.segment,
        };
        let lens = match kind {
            Kind::Write => PLACE_LEN + 1..=FRAME_MAX,
            Kind::Packets => 1..=FRAME_MAX,
            Kind::Handshake => 1..=HANDSHAKE_MAX,
            Kind::Eviction | Kind::Answer => 0..=0,
            Kind::Join => JOIN_LEN..=JOIN_LEN,
            Kind::Challenge => CHALLENGE_LEN..=CHALLENGE_LEN,
            Kind::Refusal => REFUSAL_LEN..=REFUSAL_LEN,
        };
        let fits = lens.contains(&head.len);
        let cut = kind != Kind::Packets || head.segment > 0;
        (fits && cut).then_some(head)
    }

    /// Bytes of the body that a tag covers.
    pub(super) fn covered(&self) -> usize {
        match self.kind {
            Kind::Handshake | Kind::Join => self.len,
            _ => 0,
        }
    }
}

/// The version in a head without a tag of another version of the framing; `None`: the bytes are no
/// such head. The first frame of each end has this form in every version.
#[cold]
pub(super) fn foreign_version(bytes: &[u8]) -> Option<u8> {
    let magic = *bytes.get(..HEAD_LEN)?.get(7)?;
    let foreign = magic & 0xf0 == FRAMING && magic != MAGIC && is_right(bytes, None, &[]);
    foreign.then_some(magic & 0xf)
}

/// Returns whether a head or destination at the start of `bytes` is the sender's: by the next tag
/// under the key, or by the inverted word where there is none.
#[inline]
pub(super) fn is_right(bytes: &[u8], key: Option<&FrameKey>, body: &[u8]) -> bool {
    let (word, second) = (word_at(bytes, 0), word_at(bytes, 8));
    match key {
        Some(key) => key.is_tag(word, body, second),
        None => word == !second,
    }
}

/// Puts the next tag into a head or destination that was encoded without a key.
pub(super) fn seal_late(bytes: &mut [u8], key: &FrameKey, body: &[u8]) {
    let tag = key.tag(word_at(bytes, 0), body);
    bytes[8..16].copy_from_slice(&tag.to_le_bytes());
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

    /// Reads a destination; `None` if it is not the sender's.
    pub(super) fn read(bytes: &[u8], key: Option<&FrameKey>) -> Option<To> {
        let bytes = bytes.get(..PLACE_LEN)?;
        let (offset, inverted) = (word_at(bytes, 16), word_at(bytes, 24));
        let right = is_right(bytes, key, To::covered(bytes)) && offset == !inverted;
        right.then_some(To {
            rkey: word_at(bytes, 0),
            offset,
        })
    }

    /// The part of an encoded destination that a tag covers beside the key.
    pub(super) fn covered(bytes: &[u8]) -> &[u8] {
        &bytes[16..24]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_auth::{ConnectionKeys, JobKey};

    fn read(bytes: &[u8]) -> Option<Head> {
        let head = Head::claimed(bytes)?;
        is_right(bytes, None, &[]).then_some(head)
    }

    fn key() -> FrameKey {
        let keys = ConnectionKeys::new(&JobKey::new([1; 32]));
        keys.pair(&[2; 16], &[3; 16], b"test").of_connector
    }

    #[test]
    fn a_tag_covers_word_body_and_number() {
        let mut key = key();
        let head = Head {
            kind: Kind::Join,
            len: JOIN_LEN,
            segment: 0,
        };
        let bytes = head.seal(&key, b"body");
        assert!(is_right(&bytes, Some(&key), b"body"));
        assert!(!is_right(&bytes, Some(&key), b"Body"));
        assert!(!is_right(&head.write(), Some(&key), b"body"), "no tag");
        for bit in 0..8 * HEAD_LEN {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&bad, Some(&key), b"body"), "bit {bit}");
        }
        let mut late = head.write();
        seal_late(&mut late, &key, b"body");
        assert_eq!(late, bytes);
        let to = To { rkey: 7, offset: 9 };
        let mut place = to.write();
        seal_late(&mut place, &key, &9u64.to_le_bytes());
        assert_eq!(To::read(&place, Some(&key)), Some(to));
        assert_eq!(To::read(&to.write(), Some(&key)), None, "no tag");
        for bit in 0..8 * PLACE_LEN {
            let mut bad = place;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(To::read(&bad, Some(&key)), None, "bit {bit}");
        }
        key.advance();
        assert!(!is_right(&bytes, Some(&key), b"body"), "repeated");
    }

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
            assert_eq!(read(&bytes), Some(head));
            for bit in 0..8 * HEAD_LEN {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&bad), None, "bit {bit} of {head:?}");
            }
        }
        let long = Head {
            kind: Kind::Packets,
            len: FRAME_MAX + 1,
            segment: 9,
        };
        assert_eq!(read(&long.write()), None);
        assert_eq!(read(&[0; HEAD_LEN - 1]), None);
    }

    #[test]
    fn another_version_is_recognised_and_nothing_else() {
        let word = u64::from_le_bytes([4, 0, 0, 0, 0, 0, 1, 0xa9]);
        let bytes: [u8; HEAD_LEN] = put_words(&[word, !word]);
        assert_eq!((read(&bytes), foreign_version(&bytes)), (None, Some(9)));
        for bit in 0..8 * HEAD_LEN {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(foreign_version(&bad), None, "bit {bit}");
        }
        let own = Head {
            kind: Kind::Eviction,
            len: 0,
            segment: 0,
        };
        assert_eq!(foreign_version(&own.write()), None);
    }

    #[test]
    fn places_are_read_as_written_and_no_flipped_bit_goes_unnoticed() {
        let to = To {
            rkey: 0x0123_4567_89ab_cdef,
            offset: 1 << 40,
        };
        let bytes = to.write();
        assert_eq!(To::read(&bytes, None), Some(to));
        for bit in 0..8 * PLACE_LEN {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(To::read(&bad, None), None);
        }
    }
}
