//! State and constants that the portable kernels and those for particular CPUs share.

pub(crate) mod aes;
pub(crate) mod nh;
pub(crate) mod xxh3;
