//! Data transfer calls of an endpoint: messages, remote memory access, atomics.

pub(crate) mod atomic;
pub(crate) mod flags;
pub(crate) mod msg;
pub(crate) mod rma;
pub(crate) mod tagged;
