//! AArch64 kernels. Every function here needs CPU features that `dispatch` has looked for.

pub(crate) mod neon;
pub(crate) mod xxh3;
