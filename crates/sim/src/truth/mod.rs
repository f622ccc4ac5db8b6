//! The truth of a run: messages, operations, and the memory that they are of.

pub(crate) mod credit;
pub(crate) mod elements;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod remote;
