//! The papers' cost models: the time of a message of L bytes from a machine's constants.
//!
//! Pure arithmetic. Seconds, bytes, bytes per second. Sources: paper 0 (EuroMPI 2012) sections 3
//! to 4.3, paper 2 section 5.2; the super-pipeline's time is paper 0's, from its reference 6.

/// A network: T(L) = latency + L / rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One-way latency of an empty message, in seconds (λ).
    pub latency: f64,
    /// Bytes per second (B_net).
    pub rate: f64,
    /// Seconds from one packet to the next at the sender (g of LogP).
    pub gap: f64,
}

impl Network {
    /// Time of `len` bytes without any checksum or copy.
    pub fn time(&self, len: f64) -> f64 {
        self.latency + len / self.rate
    }
}

/// The work of each end per byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Copied at this rate, in bytes per second.
    Copy(f64),
    /// Copied at the first rate, then summed at the second, from the cache (paper 2).
    CopyThenSum(f64, f64),
    /// Copied and summed in one pass at this rate (paper 0).
    Fused(f64),
}

impl Work {
    /// Seconds per byte at one end.
    pub fn per_byte(&self) -> f64 {
        match *self {
            Work::Copy(rate) | Work::Fused(rate) => 1.0 / rate,
            Work::CopyThenSum(copy, sum) => 1.0 / copy + 1.0 / sum,
        }
    }

    /// Bytes per second at one end.
    pub fn rate(&self) -> f64 {
        1.0 / self.per_byte()
    }
}

/// Naive checksums (paper 0, section 3): sum all, send all, sum all.
pub fn naive(network: &Network, sum_rate: f64, len: f64) -> f64 {
    len / sum_rate + network.time(len) + len / sum_rate
}

/// An eager message (paper 0, section 4.2; paper 2, section 5.2): both ends process the whole
/// message, one before and one after the transfer.
pub fn eager(network: &Network, work: &Work, len: f64) -> f64 {
    2.0 * len * work.per_byte() + network.time(len)
}

/// The super-pipeline's parameters (paper 0, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// C0: first chunk, in bytes.
    pub first: f64,
    /// q: ratio of successive chunk sizes; 1 if all are equal.
    pub growth: f64,
    /// b: block size of the last chunk, in bytes.
    pub last_block: f64,
}

/// Smallest block of the last chunk, in bytes: the papers' (paper 0, section 4.3).
const BLOCK_MIN: f64 = 4096.0;
/// Shortest first chunk, in bytes: a shorter chunk is not worth its packet.
const FIRST_MIN: f64 = 4096.0;

impl Pipeline {
    /// Chunks for this network and this work. The first chunk is processed during the rendezvous'
    /// round trip (C0 = 2λ·B), and each later chunk during the transfer of the chunk before it (q =
    /// B/B_net), which needs q > 1. The last block takes at most one gap.
    pub fn fit(network: &Network, work: &Work) -> Pipeline {
        let rate = work.rate();
        let growth = rate / network.rate;
        let block = (network.gap * rate).max(BLOCK_MIN);
        Pipeline {
            first: (2.0 * network.latency * rate).max(FIRST_MIN),
            growth: if growth > 1.0 { growth } else { 1.0 },
            last_block: block,
        }
    }

    /// Number of chunks of a message: n = log_q(1 + L/C0·(q - 1)), or L/C0 for equal chunks.
    pub fn chunks(&self, len: f64) -> f64 {
        let first = self.first.max(1.0);
        if self.growth <= 1.0 {
            return (len / first).max(1.0);
        }
        (1.0 + len / first * (self.growth - 1.0)).ln() / self.growth.ln()
    }

    /// Time of `len` bytes after the receiver's answer: b/B + g·n + λ + L/B_net. If the work is
    /// slower than the network, B replaces B_net for long messages.
    pub fn time(&self, network: &Network, work: &Work, len: f64) -> f64 {
        let (block, slower) = (self.last_block.min(len), network.rate.min(work.rate()));
        block * work.per_byte() + network.gap * self.chunks(len) + network.latency + len / slower
    }
}

/// Time of a rendezvous: the request's round trip, which overlaps with the first chunk's work, then
/// the super-pipeline.
pub fn rendezvous(network: &Network, work: &Work, pipeline: &Pipeline, len: f64) -> f64 {
    2.0 * network.latency + pipeline.time(network, work, len)
}

/// The longest message, up to `most` bytes, whose eager transfer with `work` is not slower than a
/// rendezvous with `chunk` work.
pub fn eager_threshold(network: &Network, work: &Work, chunk: &Work, most: usize) -> usize {
    let pipeline = Pipeline::fit(network, chunk);
    let wins = |len: usize| {
        let len = len as f64;
        eager(network, work, len) <= rendezvous(network, chunk, &pipeline, len)
    };
    // Eager time grows faster with the length, so the curves cross once.
    let (mut below, mut above) = (0, most + 1);
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        *(if wins(middle) { &mut below } else { &mut above }) = middle;
    }
    below
}

/// Overhead of `with` over `without`, in percent of `without`.
pub fn overhead_percent(with: f64, without: f64) -> f64 {
    100.0 * (with / without - 1.0)
}

/// Bandwidth lost if a message takes `with` instead of `without`, in percent.
pub fn loss_percent(with: f64, without: f64) -> f64 {
    100.0 * (1.0 - without / with)
}
