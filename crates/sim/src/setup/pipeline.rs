//! Simulates the super-pipeline's plan with two copying processors and a network, beside the
//! formula of paper 0 for its time.

use crate::base::rng::Rng;
use marline_proto::{Chunk, Pipeline};

/// The machine of a transfer. Rates in bytes per nanosecond (GB/s), times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// One-way latency of the network.
    pub latency_ns: f64,
    /// Rate of the network.
    pub net: f64,
    /// Rate of copying (and summing) on either side.
    pub copy: f64,
    /// Time per chunk in addition to its bytes (LogP's gap).
    pub gap_ns: f64,
}

impl Machine {
    /// The plan that the paper derives from these numbers, with sub-blocks of `block` bytes.
    pub fn plan(&self, block: u32) -> Pipeline {
        Pipeline {
            first_bytes: (2.0 * self.latency_ns * self.copy) as u32,
            growth_permille: (1_000.0 * self.copy / self.net) as u32,
            block_bytes: block,
            chunk_max: u32::MAX,
        }
    }

    /// Time from the grant to the last byte copied at the receiver. The sender starts copying when
    /// it sends the request, a round trip before the grant.
    pub fn play(&self, chunks: impl Iterator<Item = Chunk>) -> f64 {
        let (mut copied, mut wire, mut landed) = (-2.0 * self.latency_ns, 0.0f64, 0.0f64);
        for chunk in chunks {
            copied += chunk.len as f64 / self.copy;
            let start = wire.max(copied) + self.gap_ns;
            wire = start + chunk.len as f64 / self.net;
            let mut done = 0;
            while done < chunk.len {
                let piece = chunk.block.min(chunk.len - done);
                done += piece;
                let arrived = start + done as f64 / self.net + self.latency_ns;
                landed = landed.max(arrived) + piece as f64 / self.copy;
            }
        }
        landed
    }

    /// T(L) of the super-pipeline, section 4.3, for a plan of [`Machine::plan`]: copy of one
    /// sub-block, gaps, latency, bytes. `total` is L in bytes.
    pub fn formula(&self, plan: &Pipeline, total: u64) -> f64 {
        let (q, first) = (self.copy / self.net, plan.first_bytes as f64);
        let gaps = (1.0 + total as f64 / first * (q - 1.0)).log(q);
        let block = (plan.block_bytes as f64).min(total as f64);
        block / self.copy + self.gap_ns * gaps + self.latency_ns + total as f64 / self.net
    }
}

/// Draws the chunks of written messages, in half of the seeds.
pub(crate) fn draw_chunks(seed: u64) -> Option<Pipeline> {
    let rng = &mut Rng::new(seed, 25);
    let plan = Pipeline {
        first_bytes: rng.pick(&[448, 2_000, 8_192, 65_536]),
        growth_permille: rng.pick(&[1_000, 1_100, 1_500, 3_000]),
        block_bytes: rng.pick(&[448, 4_096, 16_384]),
        chunk_max: rng.pick(&[8_192, 65_536]),
    };
    rng.one_in(2).then_some(plan)
}
