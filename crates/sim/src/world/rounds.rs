//! Counts the rounds of a run: a seed with too little to do goes on.

/// The rounds of a run.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u32,
    /// How much longer than the first the present one is.
    times: u64,
    /// Packets before it.
    before: u64,
    /// Until then live peers may be declared dead for what was in the round before.
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
    /// The length of the next round (`None`: enough), after so many packets in all.
    pub(crate) fn next(&mut self, packets: u64, wanted: u64) -> Option<u64> {
        let missing = wanted.checked_sub(packets).filter(|&n| n > 0)?;
        let got = (packets - self.before).max(1);
        // A quarter more than the last one promises, since not all of a round grows.
        self.times = (missing * self.times * 5 / 4 / got + 1).min(TIMES_MAX);
        self.before = packets;
        self.count += 1;
        Some(self.times)
    }
}

/// A round is so many times as long as the first at most: a run's operations are kept in memory.
const TIMES_MAX: u64 = 16;
