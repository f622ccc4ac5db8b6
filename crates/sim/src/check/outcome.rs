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
    /// Broken promise, with the report.
    pub failure: Option<String>,
    /// Counters of the network.
    pub net: NetStats,
    /// How often each trouble began.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Packets that showed the moment of [`crate::Setup::strike`].
    pub moments: u64,
    /// Messages sent.
    pub messages: u64,
    /// Operations that an endpoint posted in one round and had open at once, at most.
    pub open_max: u64,
    /// Virtual time when the last operation ended.
    pub worked_ns: u64,
    /// How long after the first fault began the last operation ended that was open then; virtual
    /// time in ns.
    pub recovery_ns: u64,
    /// Conversations of all nodes at the end, and bytes of their state.
    pub peers: u64,
    /// See `peers`.
    pub peer_bytes: u64,
    /// Fragments that were written, and of these such as had not landed where they were told of.
    pub written: (u64, u64),
    /// How often a rail's writes and reads were given up.
    pub drained: u64,
    /// Counters of all paths by the index of their local rail.
    pub rails: Vec<PathStats>,
}
