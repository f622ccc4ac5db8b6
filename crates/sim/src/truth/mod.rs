//! The truth of a run: messages, operations, and their memory.

pub(crate) mod amplification;
pub(crate) mod credit;
pub(crate) mod elements;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod remote;
