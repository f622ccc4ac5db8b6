//! Random delays that keep a large group from sending at once.

/// A generator of delays, deterministic for a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    state: u64,
    /// Number of slots of a delay: one more than the doublings from one member to all.
    slots: u32,
}

impl Draw {
    /// Delays for one of `members` members.
    pub fn new(seed: u64, members: u16) -> Draw {
        Draw {
            state: seed,
            slots: (members.max(2) as u32 - 1).ilog2() + 1,
        }
    }

    /// A random number of 64 bits (SplitMix64).
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A delay of up to `unit_ns` per slot. About one member of the group draws the first slot, one
    /// the second, two the third, four the fourth and so on: the truncated exponential distribution
    /// of RFC 5740, section 5.3. By the time at which most members would send, the first members
    /// have been heard and answered.
    pub(super) fn delay_ns(&mut self, unit_ns: u64) -> u64 {
        let (doublings, within) = (self.next(), self.next());
        let slot = self.slots - doublings.leading_zeros().min(self.slots);
        slot as u64 * unit_ns + within % unit_ns.max(1)
    }
}
