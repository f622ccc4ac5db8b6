//! Atomics of code that threads or processes share without a lock, from one place, so that
//! `tests/loom.rs` can compile the same files over those of a model checker.

pub(crate) use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
