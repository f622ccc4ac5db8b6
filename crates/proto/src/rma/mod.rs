//! Remote memory: reads, writes, and messages that rails write or read without packets.

pub(crate) mod pull;
pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod remote_write;
