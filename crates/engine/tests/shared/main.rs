//! The complete engine with its locks, the progress thread and application threads, in many random
//! interleavings, with shuttle: all of `src` is compiled here again with shuttle's threads and with
//! locks that assert their order. Only the kernel is replaced (`kernel.rs`).

#![allow(dead_code, unused_imports)] // a model needs no settings, profile or page

#[path = "../support/caps.rs"]
mod caps;
mod kernel;
mod ranked;
mod sync {
    pub(crate) use crate::ranked::{Mutex, MutexGuard};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use shuttle::sync::{Arc, Weak};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    // Not steps of a model: one thread at a time writes each of these words, between other steps,
    // and loom checks `Waker` with its fences. The page's unit tests, compiled here again, need
    // real atomics.
    pub(crate) use std::sync::atomic::{fence, AtomicU64};
    pub(crate) use std::sync::PoisonError;
}
#[path = "../../src"]
mod src {
    pub mod api;
    pub mod config;
    pub mod core;
    pub mod engine;
    pub mod memory;
    pub mod open;
    pub mod platform {
        pub mod bell;
        pub mod clock;
        pub mod counter_clock;
        pub mod fork;
        pub(crate) mod idle_cores;
        pub mod owned;
        pub mod random;
        pub mod system;
        pub mod wall_clock;
        pub use crate::kernel::event;
        pub(crate) use crate::sync;
    }
    pub mod progress;
    pub mod state;
    pub mod stats;
}
mod tests;

use src::*;

pub use api::*;
pub use engine::Engine;
pub use platform::bell::Bell;
pub use platform::clock::Clock;
pub use platform::fork::mark_forked;
pub use platform::random::Random;
pub use platform::system::{System, Watch};
pub use progress::process::Process;
pub use progress::shared::Parts;
pub use src::core::{Core, CoreConfig};
