//! Segments of a message's memory that its receiver may read: the frames ADVERTISEMENT and HAVE.

use crate::header::u64_at;
use crate::prefix::{prefix, put, KIND_ADVERTISEMENT, KIND_HAVE};

/// Bytes of an ADVERTISEMENT frame.
pub const ADVERTISEMENT_LEN: usize = 24;
/// Bytes of a HAVE frame.
pub const HAVE_LEN: usize = 8 + SEGMENTS_MAX / 8;
/// Most segments of a message in an [`Advertisement`].
pub const SEGMENTS_MAX: usize = 256;

/// A segment of a rendezvous message's memory that the receiver may read instead of granting the
/// message. The first segment precedes the message's [`crate::Rts`] in the same packet and is never
/// retransmitted: a receiver that does not get it sends a grant. The others follow after the
/// request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Message number.
    pub number: u32,
    /// Number of the segment.
    pub segment: u8,
    /// The sender's index of the rail.
    pub rail: u8,
    /// The rail's key of the memory; offsets under the key are those of the message. 0: the memory
    /// must not be read.
    pub key: u64,
    /// Sum of the segment, seeded as if it were a fragment.
    pub sum: u64,
}

/// Segments of a message that the receiver has read and that need not be sent. Sent along with the
/// message's grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Have {
    /// Message number.
    pub number: u32,
    /// Bit n of word m: segment 64 m + n.
    pub segments: [u64; SEGMENTS_MAX / 64],
}

impl Advertisement {
    pub(crate) fn write(&self, out: &mut [u8]) {
        prefix(
            out,
            KIND_ADVERTISEMENT,
            self.segment,
            self.rail as u16,
            self.number,
        );
        put(out, 8, self.key);
        put(out, 16, self.sum);
    }

    pub(crate) fn read(b: &[u8], flags: u8, aux: u16, word: u32) -> Advertisement {
        Advertisement {
            number: word,
            segment: flags,
            rail: aux as u8,
            key: u64_at(b, 8),
            sum: u64_at(b, 16),
        }
    }
}

impl Have {
    pub(crate) fn write(&self, out: &mut [u8]) {
        prefix(out, KIND_HAVE, 0, 0, self.number);
        let words = self.segments.iter().enumerate();
        words.for_each(|(m, word)| put(out, 8 + 8 * m, *word));
    }

    pub(crate) fn read(b: &[u8], word: u32) -> Have {
        Have {
            number: word,
            segments: core::array::from_fn(|m| u64_at(b, 8 + 8 * m)),
        }
    }
}
