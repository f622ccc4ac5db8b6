//! Outgoing packets.

pub(crate) mod bulk;
pub(crate) mod packet_builder;
pub(crate) mod scheduler;
