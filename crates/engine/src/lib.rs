//! The engine owns protocol, rails, buffers and the progress thread, and is the Rust API of
//! Marline. Doors (`marline-provider`, later `marline-mpi`) and the simulator call it.
//!
//! All calls may come from any thread. Nothing here panics on bad input.

mod api;
pub mod clock;
pub mod fork;
pub mod settings;
pub mod stats;
pub mod wake;

pub use api::*;
