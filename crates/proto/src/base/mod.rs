//! Settings, types and tables that the rest of the crate uses.

pub(crate) mod blocks;
pub(crate) mod config;
pub(crate) mod evidence;
pub(crate) mod memory;
pub(crate) mod mutation;
pub(crate) mod pairing;
pub(crate) mod pipeline;
pub(crate) mod side_work;
pub(crate) mod slab;
pub(crate) mod stats;
pub(crate) mod types;
pub(crate) mod waits;
