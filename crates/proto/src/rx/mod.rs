//! Incoming packets.

pub(crate) mod bulk;
pub(crate) mod packet;
