//! Fuzz targets: functions that take bytes and panic when an invariant is violated.
//!
//! A coverage-guided fuzzer calls them (`fuzz_targets/`, see CONTRIBUTING); `cargo test` replays
//! the committed inputs in `corpus/` through the same functions without a fuzzer. None of this is
//! part of a release.
#![forbid(unsafe_code)]

mod admission;
mod frames;
mod group;
mod input;
mod memory;
mod node;
mod ops;
mod packet;
mod page;
mod text;

pub use admission::admission;
pub use group::{group, group_packet};
pub use node::node;
pub use ops::operations;
pub use packet::{address, packet};
pub use page::stats_page;
pub use text::{faults, settings};

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name; each name is also the directory of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packet),
    ("admission", admission),
    ("node", node),
    ("operations", operations),
    ("address", address),
    ("settings", settings),
    ("faults", faults),
    ("stats_page", stats_page),
    ("group_packet", group_packet),
    ("group", group),
];
