//! The locks that `events.rs` uses; `tests/shuttle.rs` puts shuttle's in their place.

pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
