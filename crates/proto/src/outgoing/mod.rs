//! Outgoing messages: their fragments, grants and keys from receivers, offers, remote writes, bulk.

pub(crate) mod builder;
pub(crate) mod bulk;
pub(crate) mod offers;
pub(crate) mod sends;
pub(crate) mod writes;
