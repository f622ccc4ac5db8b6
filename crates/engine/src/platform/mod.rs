//! Access to machine, kernel and process.

pub mod bell;
pub mod clock;
mod counter_clock;
pub(crate) mod event;
pub mod fork;
pub(crate) mod idle_cores;
pub mod owned;
pub(crate) mod random;
pub(crate) mod sync;
pub mod system;
pub mod wall_clock;
