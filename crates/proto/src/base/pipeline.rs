//! The super-pipeline of paper 0 (section 4.3, figure 3): cuts a copied message into chunks so that
//! copies and transfers overlap on both sides.
//!
//! Chunk `k` has `C0 * q^k` bytes. `C0` is the number of bytes that can be copied (and summed)
//! while request and grant of the rendezvous are in flight: copying it costs nothing. `q` is the
//! rate of the copy over that of the network, so that copying chunk `k + 1` takes as long as
//! sending chunk `k`. The receiver copies a chunk while the next ones arrive. A chunk whose copy
//! would not be hidden (the last, and with small `q` some before it) is copied in sub-blocks as
//! they arrive, which leaves the copy of one sub-block at the end. Then
//!
//! ```text
//! T(L) = b / B_copy + g * n + latency + L / B_net,   n = log_q(1 + L / C0 * (q - 1))
//! ```
//!
//! Where the copy is no faster than the network, growth gains nothing: all chunks have one size.
//! The plan is for rails that write into registered memory from staging buffers; packet rails copy
//! packet by packet (docs/design/rendezvous.md). The receiver of writes copies nothing: its work
//! behind a write is the sum, and the sub-blocks are separate writes.

use marline_wire::BLOCK_BYTES;

/// Chunk sizes. The numbers come from the tuner; the caller keeps them within sensible bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// C0: bytes copied and summed while request and grant are in flight.
    pub first_bytes: u32,
    /// q in thousandths: rate of copy and sum divided by the rate of the network. At most 1000:
    /// chunks do not grow.
    pub growth_permille: u32,
    /// Sub-block in bytes of chunks whose copy is not hidden.
    pub block_bytes: u32,
    /// Bytes of each chunk if chunks do not grow, else of the largest chunk: the size of a staging
    /// buffer.
    pub chunk_max: u32,
}

/// A chunk: the sender copies it as a whole and sends it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset in the message, in whole blocks.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The receiver copies pieces of this many bytes as they arrive; equal to `len`: the whole
    /// chunk at once.
    pub block: u64,
}

/// The chunks of one message, in order.
#[derive(Clone, Debug)]
pub struct Chunks {
    plan: Pipeline,
    total: u64,
    offset: u64,
    next_len: u64,
}

/// Rounds down to whole blocks, at least one.
fn whole(bytes: u64) -> u64 {
    (bytes / BLOCK_BYTES).max(1) * BLOCK_BYTES
}

impl Pipeline {
    /// The chunks of a message of `total` bytes: every byte once, in order.
    pub fn chunks(&self, total: u64) -> Chunks {
        let first = match self.grows() {
            true => self.first_bytes.min(self.chunk_max),
            false => self.chunk_max,
        };
        Chunks {
            plan: *self,
            total,
            offset: 0,
            next_len: whole(first as u64),
        }
    }

    /// Bytes to send next of a message of `total` bytes of which `offset` bytes were sent: up to
    /// the end of the chunk or of its sub-block.
    pub fn next_len(&self, total: u64, offset: u64) -> u64 {
        let mut chunks = self.chunks(total);
        chunks.pass(offset);
        let Some(Chunk {
            offset: from,
            len,
            block,
        }) = chunks.next()
        else {
            return 0;
        };
        let gone = offset - from;
        (len - gone).min(block - gone % block)
    }

    /// Returns whether chunks grow.
    pub fn grows(&self) -> bool {
        self.growth_permille > 1_000
    }

    /// The pipeline of equal chunks, for comparison.
    pub fn fixed(chunk_bytes: u32) -> Pipeline {
        Pipeline {
            first_bytes: chunk_bytes,
            growth_permille: 1_000,
            block_bytes: chunk_bytes,
            chunk_max: chunk_bytes,
        }
    }
}

impl Chunks {
    /// Skips the chunks that end at or before `offset`.
    fn pass(&mut self, offset: u64) {
        let largest = whole(self.plan.chunk_max as u64);
        while self.plan.grows() && self.next_len < largest {
            let before = self.clone();
            let passed = self.next().is_some_and(|c| c.offset + c.len <= offset);
            if !passed {
                *self = before;
                return;
            }
        }
        self.offset += (offset - self.offset) / self.next_len * self.next_len;
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let left = self.total.checked_sub(self.offset).filter(|&n| n > 0)?;
        let plan = &self.plan;
        let len = left.min(self.next_len);
        let rest = left - len;
        if plan.grows() {
            let grown = self.next_len as u128 * plan.growth_permille as u128 / 1_000;
            // Grow by at least one block: rounding would keep tiny chunks from growing.
            let grown = whole(grown as u64).max(self.next_len + BLOCK_BYTES);
            self.next_len = grown.min(whole(plan.chunk_max as u64));
        }
        // True if copying this and all later chunks takes longer than the arrival of the later
        // chunks.
        let ahead = plan.growth_permille.saturating_sub(1_000);
        let exposed = len as u128 * 1_000 > rest as u128 * ahead as u128;
        let block = match exposed && plan.grows() {
            true => whole(plan.block_bytes as u64).min(len),
            false => len,
        };
        let offset = self.offset;
        self.offset += len;
        Some(Chunk { offset, len, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const PLAN: Pipeline = Pipeline {
        first_bytes: 16_384,
        growth_permille: 2_000,
        block_bytes: 4_096,
        chunk_max: u32::MAX,
    };

    #[test]
    fn chunks_cover_every_byte_once_in_whole_blocks() {
        for plan in [PLAN, Pipeline::fixed(16_384), Pipeline::fixed(1)] {
            for total in [0, 1, 447, 448, 449, 16_384, 16_385, 100_000, 1 << 20] {
                let mut at = 0;
                for chunk in plan.chunks(total) {
                    assert_eq!(chunk.offset, at);
                    assert!(chunk.len > 0 && chunk.offset % BLOCK_BYTES == 0);
                    assert!(chunk.block > 0 && chunk.block <= chunk.len);
                    at += chunk.len;
                }
                assert_eq!(at, total);
            }
        }
    }

    #[test]
    fn chunks_grow_by_the_ratio_up_to_the_buffer() {
        let lens: Vec<u64> = PLAN.chunks(10 << 20).map(|c| c.len).collect();
        for pair in lens[..lens.len() - 1].windows(2) {
            let ratio = pair[1] as f64 / pair[0] as f64;
            assert!((1.97..=2.0).contains(&ratio), "{lens:?}");
        }
        let capped = Pipeline {
            chunk_max: 100_000,
            ..PLAN
        };
        assert!(capped.chunks(10 << 20).all(|c| c.len <= 100_000));
    }

    #[test]
    fn next_len_ends_at_a_chunk_or_block() {
        for plan in [PLAN, Pipeline::fixed(16_384), Pipeline::fixed(1)] {
            for total in [1, 100_000, (1 << 20) + 7] {
                for chunk in plan.chunks(total) {
                    let end = chunk.offset + chunk.len;
                    for gone in [0, 1, chunk.len / 2, chunk.len - 1] {
                        let offset = chunk.offset + gone.min(chunk.len - 1);
                        let next = plan.next_len(total, offset);
                        let block = (offset - chunk.offset) / chunk.block + 1;
                        let ends = end.min(chunk.offset + block * chunk.block);
                        assert_eq!(offset + next, ends, "{plan:?} {total} {chunk:?} {gone}");
                    }
                }
                assert_eq!(plan.next_len(total, total), 0);
            }
        }
    }

    #[test]
    fn without_a_faster_copy_chunks_are_equal() {
        let plan = Pipeline {
            growth_permille: 999,
            chunk_max: 65_536,
            ..PLAN
        };
        let lens: Vec<u64> = plan.chunks(1 << 20).map(|c| c.len).collect();
        let equal = |l: &u64| *l == 65_536 / BLOCK_BYTES * BLOCK_BYTES;
        assert!(lens[..lens.len() - 1].iter().all(equal), "{lens:?}");
    }

    #[test]
    fn the_end_is_copied_in_blocks() {
        let chunks: Vec<Chunk> = PLAN.chunks(1 << 20).collect();
        let last = chunks.last().unwrap();
        assert!(last.block <= 4_096);
        assert_eq!(chunks[0].block, chunks[0].len);
        // A short last chunk hides little of the previous chunk's copy.
        let short: Vec<Chunk> = PLAN.chunks(16_384 * 3 + 100).collect();
        assert!(short[short.len() - 2].block <= 4_096, "{short:?}");
    }
}
