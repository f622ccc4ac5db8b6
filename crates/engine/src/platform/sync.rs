//! Atomics and locks for cross-thread code, in one module that model checkers replace:
//! `tests/loom.rs` and `tests/shuttle.rs` compile the same files with loom's or shuttle's `sync`.

pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use std::thread::{Builder, JoinHandle};
