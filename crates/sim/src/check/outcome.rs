//! The result of a seed.

use crate::network::net::NetStats;
use marline_proto::PathStats;
use std::collections::BTreeMap;

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Seed.
    pub seed: u64,
    /// Hash of all events.
    pub hash: u64,
    /// The report of a violated invariant.
    pub failure: Option<String>,
    /// Counters of the network.
    pub net: NetStats,
    /// Number of occurrences of each trouble.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Packets that matched the trigger of [`crate::Setup::strike`].
    pub moments: u64,
    /// Messages sent.
    pub messages: u64,
    /// Most operations of one endpoint and round that were open at once.
    pub open_max: u64,
    /// Virtual time of the last operation's end.
    pub worked_ns: u64,
    /// Virtual time of the whole run.
    pub simulated_ns: u64,
    /// Virtual time in ns from the start of the first fault to the end of the last operation that
    /// was open at that time.
    pub recovery_ns: u64,
    /// Connections (`Conn`) of all nodes at the end; `peer_bytes`: bytes of their state.
    pub peers: u64,
    /// See `peers`.
    pub peer_bytes: u64,
    /// Written fragments, and how many of them had not landed at their reported place.
    pub written: (u64, u64),
    /// Frames and fields of the next version: skipped by endpoints of this one, read by those that
    /// pretend to speak it.
    pub skipped: (u64, u64),
    /// Number of times that a rail's writes and reads were drained.
    pub drained: u64,
    /// Counters of all paths by the index of their local rail.
    pub rails: Vec<PathStats>,
}
