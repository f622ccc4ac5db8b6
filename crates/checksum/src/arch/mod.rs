//! Kernels for particular CPUs; everything has a portable form outside this module.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86_64;
