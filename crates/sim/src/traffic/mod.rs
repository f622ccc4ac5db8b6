//! Rails and connections in the world: they dial, write, read, move and fail.

pub(crate) mod dials;
pub(crate) mod forget;
pub(crate) mod moves;
pub(crate) mod neighbours;
pub(crate) mod packets;
pub(crate) mod reach;
pub(crate) mod reads;
pub(crate) mod rest;
pub(crate) mod staging;
pub(crate) mod strike;
pub(crate) mod unreliable;
pub(crate) mod verbs;
pub(crate) mod writes;
