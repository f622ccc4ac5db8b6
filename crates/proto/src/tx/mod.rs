//! Outgoing packets.

pub(crate) mod bulk;
pub(crate) mod fast_path;
pub(crate) mod packet_builder;
pub(crate) mod scheduler;
