//! The first word of a frame in a stream or a ring.
//!
//! ```text
//! bits 0-31 bytes of the body    32-47 length of each packet but the last
//!      48-55 kind    56-63 magic
//! ```

/// The contents of the word except the magic, which identifies the framing and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameWord {
    pub(crate) kind: u8,
    /// Bytes of the body.
    pub(crate) len: usize,
    /// Length of each packet but the last.
    pub(crate) segment: usize,
}

impl FrameWord {
    #[inline]
    pub(crate) fn pack(&self, magic: u8) -> u64 {
        let (kind, magic) = (u64::from(self.kind), u64::from(magic));
        self.len as u64 | (self.segment as u64) << 32 | kind << 48 | magic << 56
    }

    /// Reads a word; `None` if its magic differs.
    #[inline]
    pub(crate) fn unpack(word: u64, magic: u8) -> Option<FrameWord> {
        (word >> 56 == u64::from(magic)).then_some(FrameWord {
            kind: (word >> 48) as u8,
            len: word as u32 as usize,
            segment: (word >> 32) as u16 as usize,
        })
    }
}

/// The little-endian word at `at`; panics if `bytes` is too short.
#[inline]
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Packs as many words as fit, little endian.
pub(crate) fn put_words<const LEN: usize>(words: &[u64]) -> [u8; LEN] {
    let mut out = [0; LEN];
    for (slot, word) in out.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    out
}
