//! The engine's work under its lock. Single-threaded: every call takes the time as argument. The
//! state is in `state`.

mod aggregate;
pub(crate) mod atomic;
pub(crate) mod awaited;
mod backpressure;
mod borrow;
mod complete;
mod direct_write;
mod execute;
mod flush;
mod group_close;
mod group_io;
mod group_send;
mod ingest;
mod link_upkeep;
mod locate;
mod outages;
mod parts;
pub(crate) mod publish;
mod remote_read;
mod remote_write;
mod report;
mod rma;
pub(crate) mod rpc;
mod submit;
mod tick;
mod unpack;
