//! Atomics and locks for cross-thread code, from one place, so that the model checkers can put
//! their own in their place: `tests/loom.rs` and `tests/shuttle.rs` compile the same files with a
//! `sync` of loom's or shuttle's.

pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread::{Builder, JoinHandle};
