//! Packets damaged on purpose, and the theory of their detection.

pub(crate) mod copies;
pub mod damage;

pub use copies::{Plan, Stuff, Tally, FULL_BYTES};
