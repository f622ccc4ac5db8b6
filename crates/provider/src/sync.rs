//! What `events.rs` is made of; `tests/shuttle.rs` puts shuttle's in its place.

pub(crate) use std::sync::{Condvar, Mutex, PoisonError};
