//! The engine owns protocol, rails, buffers and the progress thread, and is the Rust API of
//! Marline. Doors (`marline-provider`, later `marline-mpi`) and the simulator call it.
//!
//! All calls may come from any thread. Nothing here panics on bad input.

mod agreed;
mod api;
pub mod choice;
pub mod clock;
mod collect;
mod core;
mod engine;
pub mod fork;
mod memory;
mod pack;
mod pool;
pub mod profile;
mod progress;
mod publish;
pub mod settings;
mod shared;
mod slots;
pub mod stats;
mod submit;
mod thread;
pub mod wake;

pub use api::*;
pub use core::{Core, CoreConfig, Random};
pub use engine::Engine;
pub use fork::mark_forked;
