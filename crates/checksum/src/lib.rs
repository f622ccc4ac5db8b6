//! Marline's checksums: payload sums, and copies that sum in the same pass.
//!
//! Not here: the place of sums in a packet (`marline-wire`), and the choice of the algorithm
//! between two peers (the handshake). The engine calls this crate for every payload that it moves,
//! and users of `wire` call [`crc32c`] for packet heads.
//!
//! Every sum starts from a `seed` (endpoint, message, offset, length), so that correct data in a
//! wrong place is rejected. A seed of 0 gives each algorithm's published values. One algorithm,
//! [`Algorithm::Aegis`], has a key.

// Some arithmetic and stores serve only kernels that other targets lack.
#![cfg_attr(
    not(all(target_arch = "x86_64", not(miri))),
    allow(dead_code, unused_imports)
)]

mod aegis;
mod aes;
mod algorithm;
mod arch;

mod cpu;
mod crc;
mod dispatch;
mod lanes;
mod nh;
mod papers;
mod pieces;
mod plan;
mod prefetch;
mod seed;
mod store;
mod summer;

mod tier;
pub mod tuner;
mod xxh3;

pub use algorithm::{Algorithm, Strength, UnknownAlgorithm};
pub use cpu::stream_min_bytes;
pub use dispatch::plain_copy;
pub use plan::{plan, set_plan, Plan};
pub use prefetch::{prefetch_for_read, prefetch_for_write};
pub use seed::{Seed, SumKey};
pub use store::CopyMode;
pub use summer::{copy_and_sum, sum, Summer, Variant, BLOCK_BYTES};
pub use tier::{tier, Tier};

/// CRC-32C of `bytes` (initial value and final xor as in RFC 3720), for packet heads.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !dispatch::crc32c_update(tier(), !0, bytes)
}

/// CRC-32C of `bytes` followed by a word (little endian). For a packet head whose last field is a
/// sum that was just computed, which this need not store and reload.
#[inline]
pub fn crc32c_with_word(bytes: &[u8], word: u64) -> u32 {
    let tier = tier::tier();
    let state = dispatch::crc32c_update(tier, !0, bytes);
    !dispatch::crc32c_update(tier, state, &word.to_le_bytes())
}
