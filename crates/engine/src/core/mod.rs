//! The engine's work under its lock. Single-threaded: every call takes the time as argument. The
//! state is in `state`.

mod aggregate;
mod ask;
pub(crate) mod atomic;
pub(crate) mod awaited;
mod backpressure;
mod borrow;
pub(crate) mod call;
mod complete;
mod direct_write;
mod execute;
mod flush;
mod group_close;
mod group_send;
mod groups;
mod ingest;
mod links;
mod outages;
mod parts;
pub(crate) mod publish;
mod remote_read;
mod remote_write;
mod report;
mod rma;
mod submit;
mod tick;
mod unpack;
