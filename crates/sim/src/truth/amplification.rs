//! Bytes between endpoints and strangers whose addresses are not proven.

use std::collections::BTreeMap;

/// Bytes that may be sent for each byte received.
const FACTOR: u64 = 3;

/// Traffic with a stranger.
#[derive(Clone, Copy, Default)]
struct Traffic {
    came: u64,
    sent: u64,
    /// A response to a challenge came.
    proven: bool,
}

/// Traffic of endpoints with strangers, by endpoint and stranger.
#[derive(Default)]
pub(crate) struct Amplification(BTreeMap<(u32, u32), Traffic>);

impl Amplification {
    /// Counts bytes that came, with a response to a challenge or not. Returns whether the stranger
    /// is proven by them.
    pub(crate) fn came(&mut self, pair: (u32, u32), bytes: usize, response: bool) -> bool {
        let traffic = self.0.entry(pair).or_default();
        traffic.came += bytes as u64;
        let first = response && !traffic.proven;
        traffic.proven |= response;
        first
    }

    /// Counts bytes that leave; the error says that they are too many.
    pub(crate) fn leaves(&mut self, pair: (u32, u32), bytes: usize) -> Result<(), String> {
        let traffic = self.0.entry(pair).or_default();
        traffic.sent += bytes as u64;
        let Traffic { came, sent, proven } = *traffic;
        match proven || sent <= FACTOR * came {
            true => Ok(()),
            false => Err(format!("stranger {} drew {sent} bytes for {came}", pair.1)),
        }
    }
}
