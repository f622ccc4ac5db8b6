//! The state of a run: processes, packets in flight, time.

pub(crate) mod app;
pub(crate) mod endpoint;
pub(crate) mod rounds;
pub(crate) mod state;
pub(crate) mod trace;
pub(crate) mod windows;
