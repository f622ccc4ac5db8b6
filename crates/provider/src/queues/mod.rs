//! Completion queues, event queues and counters, and the ways to wait for them.

pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod eq;
mod events;
pub(crate) mod poll;
mod sync;
mod wait;
