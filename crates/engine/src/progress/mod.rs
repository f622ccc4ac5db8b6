//! Polls of the rails by the application's calls and by the progress thread.

mod close;
mod cpu_yield;
mod host_leader;
mod poll;
mod poll_gap;
pub mod process;
mod read;
mod receivers;
mod registry;
pub mod shared;
mod sharing;
mod skips;
pub(crate) mod sum_workers;
pub(crate) mod thread;
pub(crate) mod waits;
pub(crate) mod waker;
mod work;
