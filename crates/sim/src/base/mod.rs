//! Basic modules: random numbers, message contents, tables and queues.

pub(crate) mod content;
pub(crate) mod queue;
pub(crate) mod rng;
pub(crate) mod spare;
pub(crate) mod table;
