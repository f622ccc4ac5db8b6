//! x86-64 kernels. Every function requires CPU features that `dispatch` has checked.

pub(crate) mod aes;
pub(crate) mod avx512;
pub(crate) mod copy;
pub(crate) mod nh;
pub(crate) mod sse;
pub(crate) mod vaes;
pub(crate) mod vnh;
pub(crate) mod vpclmul;
pub(crate) mod xxh3;
