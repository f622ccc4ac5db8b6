//! x86-64 kernels. Every function here needs CPU features that `dispatch` has looked for.

pub(crate) mod avx512;
pub(crate) mod fold128;
pub(crate) mod sse42;
