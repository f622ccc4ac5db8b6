//! Counts the rounds of a run, which repeat until a seed has enough packets.

/// The rounds of a run.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u32,
    /// Length of the current round, as a multiple of the first.
    times: u64,
    /// Packets before this round.
    before: u64,
    /// Time until which live peers may be declared dead because of the round before.
    pub(crate) deaths_until: u64,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds {
            count: 1,
            times: 1,
            before: 0,
            deaths_until: 0,
        }
    }
}

impl Rounds {
    /// The length of the next round after `packets` in total; `None` if that is enough.
    pub(crate) fn next(&mut self, packets: u64, wanted: u64) -> Option<u64> {
        let missing = wanted.checked_sub(packets).filter(|&n| n > 0)?;
        let got = (packets - self.before).max(1);
        // Packets grow with the length of a round, but less than in proportion: some parts of a
        // round have a fixed length. So the next round is a quarter longer.
        self.times = (missing * self.times * 5 / 4 / got + 1).min(TIMES_MAX);
        self.before = packets;
        self.count += 1;
        Some(self.times)
    }
}

/// Longest round as a multiple of the first: a run's operations are kept in memory.
const TIMES_MAX: u64 = 16;
