//! Simulation of whole clusters of real engines on a virtual clock and network, with every fault,
//! reproducible from a seed.
//!
//! [`Setup::draw`] turns a seed into a cluster, a workload and faults; [`run_setup`] runs it and
//! checks every completion against the truth; [`run_seeds`] does that for many seeds. Callers are
//! the `marline-sim` binary, through [`command`], and tests. This crate is not part of production
//! code.
#![forbid(unsafe_code)]

mod app;
mod base;
mod check;
pub mod group;
pub mod inject;
mod machine;
mod network;
mod run;
pub mod scale;
mod setup;
mod traffic;
mod truth;
mod world;

pub use check::outcome::Outcome;
pub use inject::damage;
pub use machine::connections::{Evictions, Verbs};
pub use network::net::NetStats;
pub use run::command;
pub use run::many::{run_seeds, watch_seeds, Hunt, Report};
pub use run::scale::{scale, Scaled};
pub use run::seed::run_setup;
pub use run::shrink::shrink;
pub use setup::choices::{FalseReport, Fault, PacketFaults, Setup, Topology, Trouble, Work};
pub use setup::moment::{Moment, Strike};
pub use setup::profile::Profile;
pub use setup::{pipeline, script};
