//! Simulations that `make mutations` repeats with deliberate mistakes in the protocol.

mod failover;
mod forget;
mod moments;
mod mutations;
mod outages;
#[cfg(feature = "staged")]
mod pipeline;
mod siblings;
mod verbs;
mod writes;
