//! Pieces of chunks, which pass on paths whose MTU shrank after the group was made.

use super::types::Chunk;
use alloc::collections::BTreeMap;
use marline_wire::{PIECES_MAX, PIECE_LEN};

/// Most pieces of a chunk sent for one request. More at a time may find no room at a receiver, and
/// then the same ones each time.
pub(super) const AT_ONCE: u16 = 32;
/// Failed retransmissions of a chunk after which it is sent in pieces. Random losses seldom repeat
/// so often.
pub(super) const PIECES_AFTER: u8 = 2;
/// Time for which a member that needed pieces is sent pieces. Then it is sent whole chunks again,
/// since the losses may have been random, or be over.
pub(super) const LAST_NS: u64 = 1_000_000_000;

/// Number of pieces of a chunk of `len` bytes; 0: the chunk is too short or too long for pieces.
pub(super) fn count(len: u32) -> u16 {
    let count = len.div_ceil(PIECE_LEN);
    match count {
        2.. if count <= PIECES_MAX as u32 => count as u16,
        _ => 0,
    }
}

/// A piece of a chunk, from 1 on.
pub(super) fn piece_of(chunk: &Chunk, piece: u16) -> Chunk {
    let at = (piece.max(1) as u32 - 1) * PIECE_LEN;
    Chunk {
        offset: chunk.offset + at as u64,
        len: chunk.len.saturating_sub(at).min(PIECE_LEN),
        piece: piece as u8,
        ..*chunk
    }
}

/// The pieces of a chunk that have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    masks: [u64; 4],
    bytes: u64,
}

/// Chunks of a root of which some pieces have arrived, by number.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    chunks: BTreeMap<u64, Here>,
}

impl Pieces {
    /// Returns whether a piece has arrived.
    pub fn has(&self, piece: &Chunk) -> bool {
        let (word, bit) = (piece.piece as usize / 64, piece.piece % 64);
        let some = self.chunks.get(&piece.number);
        some.is_some_and(|some| some.masks[word] >> bit & 1 == 1)
    }

    /// Records an arrived piece. Returns whether it is new.
    pub fn add(&mut self, piece: &Chunk) -> bool {
        let news = !self.has(piece);
        let (word, bit) = (piece.piece as usize / 64, piece.piece % 64);
        let some = self.chunks.entry(piece.number).or_default();
        some.masks[word] |= 1 << bit;
        some.bytes += if news { piece.len as u64 } else { 0 };
        news
    }

    /// Bytes of a chunk that have arrived in pieces.
    pub fn bytes(&self, number: u64) -> u64 {
        self.chunks.get(&number).map_or(0, |some| some.bytes)
    }

    /// Forgets pieces of `count` chunks from `number` on, which have arrived whole.
    pub fn remove(&mut self, number: u64, count: u64) {
        if !self.chunks.is_empty() {
            let gone = number..number.saturating_add(count);
            self.chunks.retain(|number, _| !gone.contains(number));
        }
    }

    /// The first chunk, from a number on, of which some pieces have arrived.
    pub fn first_from(&self, number: u64) -> Option<u64> {
        self.chunks
            .range(number..)
            .next()
            .map(|(&number, _)| number)
    }

    /// Bytes of heap.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.len() * size_of::<(u64, Here)>()
    }
}

/// The chunk to which a piece belongs, or the chunk itself. Chunks have `size` bytes, except the
/// last of a broadcast. `None`: there is no such piece of the chunk.
pub(super) fn whole_of(chunk: &Chunk, size: u32) -> Option<Chunk> {
    if chunk.piece == 0 {
        return Some(*chunk);
    }
    let offset = chunk.offset.checked_sub(chunk.within() as u64)?;
    let rest = chunk.total.checked_sub(offset)?;
    let whole = Chunk {
        offset,
        len: rest.min(size as u64) as u32,
        piece: 0,
        ..*chunk
    };
    let known = chunk.piece as u16 <= count(whole.len);
    let same = || piece_of(&whole, chunk.piece as u16) == *chunk;
    (known && same()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Chunk = Chunk {
        root: 1,
        number: 7,
        broadcast: 2,
        offset: 1_344,
        len: 1_000,
        total: 2_344,
        parity: 0,
        piece: 0,
        asks: true,
        leaves: true,
    };

    #[test]
    fn pieces_cover_a_chunk_once() {
        assert_eq!(count(CHUNK.len), 3);
        let pieces = (1..=3).map(|n| piece_of(&CHUNK, n));
        let mut at = CHUNK.offset;
        for piece in pieces {
            assert_eq!(
                (piece.offset, piece.within() as u64),
                (at, at - CHUNK.offset)
            );
            at += piece.len as u64;
        }
        assert_eq!(at, CHUNK.total);
        let none = [count(1), count(PIECE_LEN), count(PIECE_LEN * 256)];
        assert_eq!((none, count(PIECE_LEN * 255)), ([0; 3], 255));
    }

    #[test]
    fn a_piece_counts_once_and_a_whole_chunk_ends_it() {
        let mut pieces = Pieces::default();
        let first = piece_of(&CHUNK, 1);
        assert!(pieces.add(&first) && !pieces.add(&first));
        assert!(pieces.has(&first) && !pieces.has(&piece_of(&CHUNK, 2)));
        assert_eq!((pieces.bytes(7), pieces.first_from(3)), (384, Some(7)));
        pieces.remove(0, 7);
        assert_eq!(pieces.bytes(7), 384);
        pieces.remove(7, 1);
        assert_eq!((pieces.bytes(7), pieces.first_from(3)), (0, None));
    }
}
