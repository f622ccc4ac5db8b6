//! State of an engine, in parts that its operations (`core`) borrow separately.

pub(crate) mod aggregate;
mod av;
pub(crate) mod buffers;
pub(crate) mod calls;
pub(crate) mod coalesce;
pub mod core;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod fast_path;
pub(crate) mod group_batch;
pub(crate) mod group_card;
pub(crate) mod group_copies;
pub(crate) mod groups;
pub(crate) mod operations;
pub(crate) mod outages;
pub mod pairing;
pub(crate) mod rails;
pub(crate) mod write;
