//! Proof by simulation: whole clusters of real engines on a virtual clock and network, with
//! every fault, reproducible from a seed.
//!
//! [`Setup::draw`] turns a seed into a cluster, a workload and faults; [`run_setup`] plays it and
//! holds every completion against the truth; [`run_seeds`] does that for many. Called by
//! `marline sim` and the `marline-sim` binary, through [`command`], and by tests. Nothing here runs
//! in production.
#![forbid(unsafe_code)]

mod app;
mod asking;
mod asks;
mod atomics;
mod bounds;
mod buffers;
mod calls;
mod cells;
mod check;
pub mod command;
mod connections;
mod content;
mod counted;
mod credit;
pub mod damage;
mod dials;
mod draw;
mod drive;
mod elements;
mod endpoint;
mod forge;
pub mod group;
mod halves;
mod hurt;
pub mod inject;
mod machine;
mod many;
mod memory;
mod moment;
mod moves;
mod net;
mod ops;
mod patterns;
mod pieces;
pub mod pipeline;
mod place;
mod profile;
mod puts;
mod queue;
mod reach;
mod reader;
mod reading;
mod reads;
mod remote;
mod rest;
mod rng;
mod rounds;
mod run;
mod scale;
pub mod script;
mod setup;
mod shrink;
mod sources;
mod spare;
mod stages;
mod staging;
mod strike;
mod table;
mod truth;
mod turn;
mod unreliable;
mod verbs;
mod watch;
mod windows;
mod world;
mod writes;

pub use connections::{Rests, Verbs};
pub use many::{run_seeds, watch_seeds, Hunt, Report};
pub use moment::{Moment, Strike};
pub use net::NetStats;
pub use profile::Profile;
pub use reader::end_with_reader;
pub use run::{run_setup, Outcome};
pub use scale::{scale, Scaled};
pub use setup::{Fault, Lie, Setup, Topology, Trouble, Weather, Work};
pub use shrink::shrink;
