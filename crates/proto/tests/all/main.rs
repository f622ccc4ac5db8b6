//! Tests of the protocol with nodes face to face, in one binary.

#[path = "../face/mod.rs"]
mod face;

mod algorithms;
mod anyone;
mod bulk_rail;
mod crowd;
mod deferred_ack;
mod departed;
mod descheduled;
mod eager_puts;
mod first_contact;
mod grants;
mod idle;
mod many_rails;
mod moved;
mod native;
mod outage;
mod peer_timeout;
mod pull;
mod puts;
mod reachability;
mod refused;
mod regressions;
mod remote_write;
mod riding;
mod runs;
mod settings;
mod silent;
mod spinning;
mod standby;
mod starved;
mod streams;
mod unreachable;
mod visible;
mod waits;
mod ways;
