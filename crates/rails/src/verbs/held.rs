//! Packets and writes that a link holds until it has a connection.

use crate::sys::gather;
use crate::Write;
use std::collections::VecDeque;

/// Most bytes held for one link: more than grants and credits allow in flight to one peer, so that
/// an unresponsive peer does not delay others.
const HELD_MAX: usize = 8 << 20;
/// Maximum of bytes held for all links.
const HELD_ALL_MAX: usize = 64 << 20;

/// A held send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A batch of packets of `segment` bytes each.
    Packets { bytes: Box<[u8]>, segment: usize },
    /// A write and its notification. The bytes are a copy, since the source memory may change
    /// before the write leaves.
    Write {
        /// The peer's key, and the offset under that key.
        key: u64,
        offset: u64,
        bytes: Box<[u8]>,
        packet: Box<[u8]>,
    },
}

impl Waiting {
    pub(super) fn packets(bytes: &[u8], segment: usize) -> Waiting {
        let bytes = bytes.into();
        Waiting::Packets { bytes, segment }
    }

    pub(super) fn write(write: &Write<'_>, packet: &[u8]) -> Waiting {
        Waiting::Write {
            key: write.key,
            offset: write.offset,
            bytes: gather(write.pieces).into(),
            packet: packet.into(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Waiting::Packets { bytes, .. } => bytes.len(),
            Waiting::Write { bytes, packet, .. } => bytes.len() + packet.len(),
        }
    }
}

/// The held sends of one link, in order.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Held {
    /// Returns whether the link holds nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether the link may hold nothing more, if all links together hold `all` bytes.
    pub(super) fn is_full(&self, all: usize) -> bool {
        self.bytes >= HELD_MAX || all >= HELD_ALL_MAX
    }

    /// Bytes of our memory that are held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a send.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.len();
        self.waiting.push_back(waiting);
    }

    /// The oldest send.
    pub(super) fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Removes the oldest send.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.len();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;

    #[test]
    fn held_sends_keep_order_and_content() {
        let bytes = [1u8; 100];
        let pieces = [Piece {
            base: bytes.as_ptr(),
            len: 100,
        }];
        let write = Write {
            key: 3,
            offset: 4,
            pieces: &pieces,
            token: 5,
            source: None,
        };
        let mut held = Held::default();
        assert!(held.is_empty() && held.first().is_none());
        held.push(Waiting::packets(&bytes, 10));
        held.push(Waiting::write(&write, b"told"));
        assert_eq!(held.bytes(), 204);
        assert_eq!(held.pop(), Some(Waiting::packets(&bytes, 10)));
        let later = Waiting::Write {
            key: 3,
            offset: 4,
            bytes: bytes.into(),
            packet: (*b"told").into(),
        };
        assert_eq!((held.pop(), held.bytes()), (Some(later), 0));
    }

    #[test]
    fn held_bytes_are_bounded() {
        let mut held = Held::default();
        held.push(Waiting::packets(&vec![0; HELD_MAX - 1], 100));
        assert!(!held.is_full(0) && held.is_full(HELD_ALL_MAX));
        held.push(Waiting::packets(&[0], 1));
        assert!(held.is_full(0));
    }
}
