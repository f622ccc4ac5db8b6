//! Message contents: slices of one long random string, so that any message can be generated and
//! compared without storing it.

use crate::base::rng::Rng;
use std::sync::OnceLock;

/// A prime number, so that slices do not align with blocks or packets.
const PERIOD: u64 = 131_071;
/// Longest contiguous slice, and size of the region for remote reads.
pub const PIECE: usize = 262_144;

/// The random string.
pub struct Content {
    pool: Vec<u8>,
}

impl Content {
    /// The string, shared by all runs.
    pub fn shared() -> &'static Content {
        static SHARED: OnceLock<Content> = OnceLock::new();
        SHARED.get_or_init(Content::new)
    }

    fn new() -> Content {
        let mut rng = Rng::new(1, 1);
        let mut pool: Vec<u8> = (0..PERIOD).map(|_| rng.next() as u8).collect();
        while pool.len() < PERIOD as usize + PIECE {
            pool.extend_from_within(..);
        }
        Content { pool }
    }

    /// Bytes `offset .. offset + len` (at most `PIECE`) of the message with this `base`.
    #[inline]
    pub fn slice(&self, base: u64, offset: u64, len: usize) -> &[u8] {
        let at = (base.wrapping_add(offset) % PERIOD) as usize;
        &self.pool[at..at + len]
    }

    /// Memory for remote reads: the content of base 0. No peer may write to it.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.pool.as_ptr().cast_mut(), PIECE)
    }

    /// Copies the message's first bytes to `to`.
    pub fn copy(&self, base: u64, to: &mut [u8]) {
        for (i, piece) in to.chunks_mut(PIECE).enumerate() {
            piece.copy_from_slice(self.slice(base, (i * PIECE) as u64, piece.len()));
        }
    }

    /// First offset at which `bytes` differ from the message.
    pub fn differs(&self, base: u64, bytes: &[u8]) -> Option<usize> {
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let want = self.slice(base, (i * PIECE) as u64, piece.len());
            if want != piece {
                let at = piece.iter().zip(want).position(|(a, b)| a != b);
                return Some(i * PIECE + at.unwrap_or(0));
            }
        }
        None
    }
}
