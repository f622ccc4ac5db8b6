//! Who polls the rails, and when: the application's calls and the progress thread.

pub(crate) mod absence;
pub(crate) mod cpu_yield;
pub(crate) mod poll;
pub(crate) mod registry;
pub(crate) mod skips;
pub(crate) mod thread;
pub(crate) mod waker;
