//! Data transfer calls of an endpoint: messages, remote memory access, atomics.

pub(crate) mod atomic;
pub(crate) mod flags;
pub(crate) mod messages;
pub(crate) mod requests;
pub(crate) mod rma;
