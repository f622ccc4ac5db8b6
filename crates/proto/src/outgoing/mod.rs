//! Outgoing messages: fragments, bulk, grants, keys from receivers, advertisements, remote writes.

pub(crate) mod advertisements;
pub(crate) mod builder;
pub(crate) mod path_choice;
pub(crate) mod sends;
pub(crate) mod writes;
