//! For tests and for people who look for a stall.

pub(crate) mod describe;
pub(crate) mod kept;
