//! Tests of engines within one process, in one binary. Tests that fork, measure or change their
//! process have binaries of their own.

#[path = "../support/caps.rs"]
mod caps;
#[path = "../support/counted.rs"]
mod counted;
#[path = "../support/limit.rs"]
mod limit;
#[path = "../support/side.rs"]
mod side;
#[path = "../support/stranger.rs"]
mod stranger;

mod bursts;
mod calls;
mod group_keys;
mod groups;
mod keys;
mod loopback;
mod poisoned;
mod regions;
mod strangers;
mod two_engines;
mod yields;
