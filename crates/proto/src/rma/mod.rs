//! Remote memory: reads, writes, messages that are written or read past the packets.

pub(crate) mod pull;
pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod remote_write;
pub(crate) mod visible;
