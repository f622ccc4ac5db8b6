//! Incoming packets.

pub(crate) mod bulk;
pub(crate) mod fragment;
pub(crate) mod packet;
