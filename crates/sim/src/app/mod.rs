//! The applications: their operations, and the memory that they open to peers.

pub(crate) mod asks;
pub(crate) mod atomics;
pub(crate) mod calls;
pub(crate) mod cells;
pub(crate) mod counted;
pub(crate) mod ops;
pub(crate) mod patterns;
pub(crate) mod pieces;
pub(crate) mod puts;
pub(crate) mod readers;
pub(crate) mod turns;
pub(crate) mod windows;
