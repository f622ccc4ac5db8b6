//! What everything else is made of: settings, types, tables.

pub(crate) mod config;
pub(crate) mod granules;
pub(crate) mod pairing;
pub(crate) mod slab;
pub(crate) mod stats;
pub(crate) mod types;
