//! AArch64 kernels. Every function requires CPU features that `dispatch` has checked.

pub(crate) mod neon;
pub(crate) mod xxh3;
