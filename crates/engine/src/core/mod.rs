//! The engine under its lock. Single-threaded: every call takes the time. `state` is what there is,
//! the other files what is done with it.

pub(crate) mod av;
pub(crate) mod backpressure;
pub(crate) mod coalesce;
mod complete;
pub(crate) mod direct_write;
pub(crate) mod fast_path;
mod flush;
mod ingest;
pub(crate) mod publish;
pub(crate) mod remote_write;
mod report;
mod resolve;
pub(crate) mod rma;
pub mod state;
mod submit;
pub(crate) mod sum_ahead;
mod tick;
