//! State of an engine, in parts that its operations (`core`) borrow separately.

pub(crate) mod admission;
pub(crate) mod aggregate;
mod av;
mod blobs;
pub(crate) mod buffers;
pub(crate) mod coalesce;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod group_batch;
pub(crate) mod group_copies;
pub(crate) mod group_seal;
pub(crate) mod group_table;
pub(crate) mod member_descriptor;
pub(crate) mod outages;
mod paged;
pub mod pairing;
pub(crate) mod rails;
pub(crate) mod regions;
pub(crate) mod requests;
pub(crate) mod rpcs;
pub(crate) mod write;
