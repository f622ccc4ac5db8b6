//! The engine owns protocol, rails, buffers and the progress thread, and is the Rust API of
//! Marline. Doors (`marline-provider`, later `marline-mpi`) and the simulator call it.
//!
//! All calls may come from any thread. Nothing here panics on bad input.

mod absence;
mod agreed;
mod ahead;
mod api;
mod assemble;
mod av;
pub mod choice;
pub mod clock;
mod collect;
mod core;
mod counted;
mod crew;
mod direct;
mod early;
mod engine;
mod event;
mod events;
pub mod fork;
mod full;
mod memory;
mod names;
mod offers;
pub mod owned;
mod pack;
mod pairing;
mod poll;
mod pool;
pub mod profile;
mod progress;
mod publish;
mod random;
mod remote;
pub mod settings;
mod shared;
mod skips;
mod slots;
mod stages;
pub mod stats;
mod submit;
mod sync;
mod system;
mod tell;
mod thread;
mod trial;
pub mod wake;
#[cfg(test)]
mod wake_test;
mod writes;

pub use api::*;
pub use clock::Clock;
pub use core::{Core, CoreConfig, Random};
pub use engine::Engine;
pub use fork::mark_forked;
pub use pairing::ByKind;
pub use shared::Parts;
pub use system::{Process, System, Watch};
