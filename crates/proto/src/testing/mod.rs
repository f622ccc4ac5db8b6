//! For tests and for people who debug a stall.

pub(crate) mod describe;
pub(crate) mod kept;
