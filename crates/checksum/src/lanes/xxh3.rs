//! The constants of XXH3's stripes (`crate::xxh3`), which all of its kernels share.

/// Scrambling multiplies by it.
pub(crate) const P32_1: u64 = 0x9e37_79b1;
/// Bytes per stripe: one accumulator of eight 64-bit lanes.
pub(crate) const STRIPE: usize = 64;
/// Stripes between scrambles: the secret moves on by 8 bytes for each.
pub(crate) const STRIPES_PER_BLOCK: usize = 16;
/// Place in the secret from which scrambling takes it.
pub(crate) const SCRAMBLE_AT: usize = 128;
