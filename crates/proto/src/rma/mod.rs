//! Remote memory: reads, writes, and messages transferred by direct writes or reads.

pub(crate) mod pull;
pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod remote_write;
pub(crate) mod visible;
