//! Frames in a ring: a word and a body that depends on the kind.
//!
//! ```text
//! word   frame_word.rs
//! body   packets   one or more packets, back to back
//!        inline    u64 key, u64 offset, u64 bytes; the bytes; one packet
//!        pull      u64 key, u64 offset, u64 pieces; per piece u64 address, u64 bytes; one packet
//! ```
//!
//! A write and its notification are one frame, so that neither is delivered without the other. The
//! consumer reads the bytes of a pull from the producer's memory.

use crate::frame_word::{put_words, word_at, FrameWord};
use crate::sys::PULL_PIECES_MAX;

/// Bytes of a write's header, before its bytes or pieces.
pub(super) const PLACE_LEN: usize = 24;
/// Bytes of a piece's description.
pub(super) const PIECE_LEN: usize = 16;
/// Version of the framing, in every word.
const MAGIC: u8 = 0xb1;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Packets.
    Packets,
    /// A write whose bytes are in the frame.
    Inline,
    /// A write whose bytes the consumer reads from the producer's memory.
    Pull,
}

/// The contents of a frame's word.
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
    pub(super) fn word(&self) -> u64 {
        let kind = match self.kind {
            Kind::Packets => 1,
            Kind::Inline => 2,
            Kind::Pull => 3,
        };
        let word = FrameWord {
            kind,
            len: self.len,
            segment: self.segment,
        };
        word.pack(MAGIC)
    }

    /// Reads a word; `None` if it is invalid or its body exceeds `body_max`.
    #[inline]
    pub(super) fn read(word: u64, body_max: u64) -> Option<Head> {
        let word = FrameWord::unpack(word, MAGIC)?;
        let kind = match word.kind {
            1 => Kind::Packets,
            2 => Kind::Inline,
            3 => Kind::Pull,
            _ => return None,
        };
        let least = if kind == Kind::Packets {
            1
        } else {
            PLACE_LEN as u64 + 1
        };
        let possible = (least..=body_max).contains(&(word.len as u64)) && word.segment > 0;
        possible.then_some(Head {
            kind,
            len: word.len,
            segment: word.segment,
        })
    }
}

/// The destination of a write, and the number of bytes or pieces that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct To {
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) count: u64,
}

impl To {
    pub(super) fn write(&self) -> [u8; PLACE_LEN] {
        put_words(&[self.key, self.offset, self.count])
    }

    pub(super) fn read(bytes: &[u8; PLACE_LEN]) -> To {
        To {
            key: word_at(bytes, 0),
            offset: word_at(bytes, 8),
            count: word_at(bytes, 16),
        }
    }
}

/// Encodes a piece of the producer's memory: address and bytes.
pub(super) fn write_piece(address: u64, len: u64) -> [u8; PIECE_LEN] {
    put_words(&[address, len])
}

/// Reads the list of a pull's pieces after its header, and their total bytes; `None` if the list is
/// malformed or no packet follows.
pub(super) fn read_pull<'a>(to: &To, rest: &'a [u8]) -> Option<(&'a [u8], u32)> {
    if to.count == 0 || to.count > PULL_PIECES_MAX as u64 {
        return None;
    }
    let list = rest.get(..to.count as usize * PIECE_LEN)?;
    let mut lens = read_pieces(list).map(|piece| piece.1);
    let total = u32::try_from(lens.try_fold(0, u64::checked_add)?).ok()?;
    (total > 0 && rest.len() > list.len()).then_some((list, total))
}

/// The pieces of a list: addresses and bytes.
pub(super) fn read_pieces(list: &[u8]) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
    list.chunks_exact(PIECE_LEN)
        .map(|piece| (word_at(piece, 0), word_at(piece, 8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_MAX: u64 = 128 * 1024;

    #[test]
    fn words_round_trip() {
        for (kind, len, segment) in [
            (Kind::Packets, 1, 1),
            (Kind::Packets, 64_000, 1_472),
            (Kind::Inline, PLACE_LEN + 1, 65_535),
            (Kind::Pull, BODY_MAX as usize, 88),
        ] {
            let head = Head { kind, len, segment };
            assert_eq!(Head::read(head.word(), BODY_MAX), Some(head));
            assert_ne!(head.word(), 0);
        }
    }

    #[test]
    fn invalid_words_are_rejected() {
        let head = Head {
            kind: Kind::Packets,
            len: BODY_MAX as usize + 1,
            segment: 1,
        };
        assert_eq!(Head::read(head.word(), BODY_MAX), None);
        let empty = Head { len: 0, ..head };
        assert_eq!(Head::read(empty.word(), BODY_MAX), None);
        let short = Head {
            kind: Kind::Pull,
            len: PLACE_LEN,
            ..head
        };
        assert_eq!(Head::read(short.word(), BODY_MAX), None);
        for word in [0, 1, u64::MAX, u64::MAX >> 1, 0x0101_0101_0101_0101] {
            assert_eq!(Head::read(word, BODY_MAX), None, "{word:x}");
        }
    }

    #[test]
    fn pulls_say_what_they_hold() {
        let to = To {
            key: 7,
            offset: 1 << 40,
            count: 2,
        };
        assert_eq!(To::read(&to.write()), to);
        let mut rest = write_piece(4096, 100).to_vec();
        rest.extend(write_piece(1 << 47, 20));
        assert_eq!(read_pull(&to, &rest), None, "no packet");
        rest.push(1);
        assert_eq!(read_pull(&to, &rest), Some((&rest[..32], 120)));
        let pieces = read_pieces(&rest[..32]);
        assert!(pieces.eq([(4096, 100), (1 << 47, 20)]));
        for count in [0, 3, 17, u64::MAX] {
            assert_eq!(read_pull(&To { count, ..to }, &rest), None);
        }
        rest[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(read_pull(&to, &rest), None, "longer than memory");
    }
}
