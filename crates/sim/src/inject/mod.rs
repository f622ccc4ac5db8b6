//! Packets that are damaged on purpose, and what theory says of them.

pub(crate) mod copies;
pub mod damage;

pub use copies::{Plan, Stuff, Tally, FULL_BYTES};
