//! Remote memory: reads, writes, fragments written past the packets.

pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod remote_write;
