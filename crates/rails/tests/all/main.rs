//! Tests of rails with real sockets and shared memory, in one binary.

#[path = "../common/mod.rs"]
mod common;
#[path = "../mirror/mod.rs"]
mod mirror;

mod connected;
mod direct;
mod faulty;
mod groups;
mod hot;
mod later;
mod loopback;
mod moves;
mod multicast;
mod pairing;
mod refusals;
mod shm;
mod veth;
mod xdp;
