//! The atomics of code that threads or processes share without a lock, in one module so that
//! `tests/loom.rs` can compile the same files with a model checker's atomics.

pub(crate) use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
