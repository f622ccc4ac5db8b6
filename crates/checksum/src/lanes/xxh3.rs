//! The constants of XXH3's stripes (`crate::xxh3`), shared by all of its kernels.

/// The multiplier of scrambling.
pub(crate) const P32_1: u64 = 0x9e37_79b1;
/// Bytes per stripe: one accumulator of eight 64-bit lanes.
pub(crate) const STRIPE: usize = 64;
/// Stripes between scrambles: the secret advances by 8 bytes per stripe.
pub(crate) const STRIPES_PER_BLOCK: usize = 16;
/// Offset in the secret for scrambling.
pub(crate) const SCRAMBLE_AT: usize = 128;
