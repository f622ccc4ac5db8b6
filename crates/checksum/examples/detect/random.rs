//! Random numbers for errors, for this example and for `tests/all/lanes.rs`.

/// Xorshift; a seed other than 0 always gives the same numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Any 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}
