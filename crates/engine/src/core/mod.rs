//! What an engine does under its lock. Single-threaded: every call takes the time. `state` has what
//! there is.

mod backpressure;
mod complete;
mod direct_write;
mod flush;
mod ingest;
pub(crate) mod publish;
mod remote_write;
mod report;
mod rma;
mod submit;
mod tick;
mod unpack;
