//! The engine as it is, with its locks, the progress thread and the threads of an application, in
//! many random orders, by shuttle: all of `src` is compiled here once more, over shuttle's threads
//! and over locks that know their order. Only the kernel is another (`kernel.rs`).

#![allow(dead_code, unused_imports)] // a model needs no settings, no profile, no page

#[path = "../stand_in/caps.rs"]
mod caps;
mod kernel;
mod ranked;
mod sync {
    pub(crate) use crate::ranked::{Mutex, MutexGuard};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use shuttle::sync::{Arc, Weak};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    // Not steps of a model: of these words one thread at a time writes each, between other steps,
    // and `Waker` has its fences tried by loom. The page's unit tests, here again, need real ones.
    pub(crate) use std::sync::atomic::{fence, AtomicU64};
    pub(crate) use std::sync::PoisonError;
}
#[path = "../../src"]
mod src {
    pub mod absence;
    pub mod agreed;
    pub mod ahead;
    pub mod api;
    pub mod assemble;
    pub mod av;
    pub mod choice;
    pub mod clock;
    pub mod collect;
    pub mod core;
    pub mod counted;
    pub mod crew;
    pub mod direct;
    pub mod early;
    pub mod engine;
    pub mod events;
    pub mod fork;
    pub mod full;
    pub mod memory;
    pub mod names;
    pub mod offers;
    pub mod owned;
    pub mod pack;
    pub mod pairing;
    pub mod poll;
    pub mod pool;
    pub mod profile;
    pub mod progress;
    pub mod publish;
    pub mod random;
    pub mod remote;
    pub mod settings;
    pub mod shared;
    pub mod skips;
    pub mod slots;
    pub mod stages;
    pub mod stats;
    pub mod submit;
    pub mod system;
    pub mod tell;
    pub mod thread;
    pub mod trial;
    pub mod wake;
    pub mod writes;
}
mod tests;

use kernel::event;
use src::core;
use src::*;

pub use api::*;
pub use clock::Clock;
pub use core::{Core, CoreConfig, Random};
pub use engine::Engine;
pub use fork::mark_forked;
pub use shared::Parts;
pub use system::{Process, System, Watch};
