//! Packets and writes that wait on a link for its connection.

use crate::sys::gather;
use crate::Write;
use std::collections::VecDeque;

/// Bytes that are held for one link at most: more than grants and credits let be under way to one
/// peer, so that a peer which does not answer holds up no other.
const HELD_MAX: usize = 8 << 20;
/// The same of all links together.
const HELD_ALL_MAX: usize = 64 << 20;

/// One thing that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A batch of packets of `segment` bytes each.
    Packets { bytes: Box<[u8]>, segment: usize },
    /// A write and the packet that tells of it. The memory that it was to read may have another
    /// content by then, so this has a copy.
    Write {
        /// The peer's key, and the place in the memory under it.
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

/// All that waits on one link, in order.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Held {
    /// True if nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if there is no room for more, where all links hold so many bytes.
    pub(super) fn is_full(&self, all: usize) -> bool {
        self.bytes >= HELD_MAX || all >= HELD_ALL_MAX
    }

    /// Bytes of ours that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// One thing more.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.len();
        self.waiting.push_back(waiting);
    }

    /// The first thing.
    pub(super) fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// The first thing is not held any more.
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
    fn what_waits_leaves_in_its_order_as_it_was() {
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
    fn there_is_an_end_to_what_is_held() {
        let mut held = Held::default();
        held.push(Waiting::packets(&vec![0; HELD_MAX - 1], 100));
        assert!(!held.is_full(0) && held.is_full(HELD_ALL_MAX));
        held.push(Waiting::packets(&[0], 1));
        assert!(held.is_full(0));
    }
}
