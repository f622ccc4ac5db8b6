//! What messages contain: a window of one long random string, so that any slice of any message
//! can be made, and compared, without storing it.

use crate::rng::Rng;
use std::sync::OnceLock;

/// A prime, so that windows do not line up with granules or packets.
const PERIOD: u64 = 131_071;
/// Longest slice in one piece.
const PIECE: usize = 65_536;

/// The string.
pub struct Content {
    pool: Vec<u8>,
}

impl Content {
    /// The one string of all runs.
    pub fn shared() -> &'static Content {
        static SHARED: OnceLock<Content> = OnceLock::new();
        SHARED.get_or_init(Content::new)
    }

    fn new() -> Content {
        let mut rng = Rng::new(1, 1);
        let mut pool: Vec<u8> = (0..PERIOD).map(|_| rng.next() as u8).collect();
        pool.extend_from_within(..PIECE);
        Content { pool }
    }

    /// Bytes `offset .. offset + len` (at most 64 KiB) of the message that starts at `base`.
    #[inline]
    pub fn slice(&self, base: u64, offset: u64, len: usize) -> &[u8] {
        let at = (base.wrapping_add(offset) % PERIOD) as usize;
        &self.pool[at..at + len]
    }

    /// First place where `bytes` differ from the message's start.
    pub fn differs(&self, base: u64, bytes: &[u8]) -> Option<usize> {
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let at = i * PIECE;
            let want = self.slice(base, at as u64, piece.len());
            if want != piece {
                return Some(
                    at + piece
                        .iter()
                        .zip(want)
                        .position(|(a, b)| a != b)
                        .unwrap_or(0),
                );
            }
        }
        None
    }
}
