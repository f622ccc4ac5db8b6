//! The engine owns protocol, rails, buffers and the progress thread, and is the Rust API of
//! Marline. API layers (`marline-provider`) and the simulator call it.
//!
//! Calls may come from any thread. Bad input never causes a panic.

mod api;
mod config;
mod core;
mod engine;
mod group_api;
mod memory;
pub mod names;
mod open;
mod platform;
mod progress;
mod state;
pub mod stats;
// Outside of `progress`, which `tests/shared` compiles with another kernel.
#[cfg(test)]
#[path = "memory/sums_test.rs"]
mod sums_test;
#[cfg(test)]
#[path = "progress/waker_test.rs"]
mod waker_test;

pub use api::*;
pub use config::{checksum_choice, profile, settings};
pub use core::atomic::atomic_max;
pub use core::{Core, CoreConfig};
pub use engine::Engine;
pub use marline_rails::{nic_of, NicInfo};
pub use memory::atomic;
pub use open::{rails_here, RailHere};
pub use platform::bell::Bell;
pub use platform::clock::{self, Clock};
pub use platform::fork::{self, mark_forked};
pub use platform::owned;
pub use platform::random::Random;
pub use platform::system::{System, Watch};
pub use platform::wall_clock;
pub use progress::process::Process;
pub use progress::shared::Parts;
pub use state::member_descriptor::MEMBER_DESCRIPTOR_LEN;
pub use state::pairing::ByKind;
