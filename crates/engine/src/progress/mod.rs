//! Polls of the rails by the application's calls and by the progress thread.

mod absence;
mod close;
mod cpu_yield;
mod poll;
pub mod process;
mod read;
mod receivers;
mod registry;
pub mod shared;
mod sharing;
mod skips;
pub(crate) mod sum_workers;
pub(crate) mod thread;
mod voice;
pub(crate) mod waits;
pub(crate) mod waker;
mod work;
