//! Kernels for particular CPUs; every algorithm has a portable form outside this module.
//!
//! The 128-bit kernels are written once, over a [`vector::Vector`]; `narrow` has them for the
//! target architecture.

mod aes128;
mod crc32c;
mod fold128;
mod kernels;
mod nh128;
mod vector;

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub(crate) mod aarch64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86_64;

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub(crate) use aarch64::neon as narrow;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::sse as narrow;

// Where hardware kernels exist, only parts of this module are used.
#[cfg_attr(not(any(test, miri)), allow(dead_code))]
pub(crate) mod soft;
#[cfg(any(
    miri,
    not(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ))
))]
pub(crate) use soft as narrow;
