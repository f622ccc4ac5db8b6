//! Rails and connections in the world: dialling, writes, reads, moves, failures.

pub(crate) mod dials;
pub(crate) mod eviction;
pub(crate) mod forget;
pub(crate) mod moves;
pub(crate) mod neighbours;
pub(crate) mod packets;
pub(crate) mod reach;
pub(crate) mod reads;
pub(crate) mod staging;
pub(crate) mod strike;
pub(crate) mod unreliable;
pub(crate) mod verbs;
pub(crate) mod writes;
