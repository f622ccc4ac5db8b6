//! The locks of `events.rs`; `tests/shuttle.rs` substitutes shuttle's.

pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
