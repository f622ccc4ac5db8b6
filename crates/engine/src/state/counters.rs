//! Counters of the process and of closed endpoints.

use crate::stats::page::PathRow;
use crate::stats::peer_rows::Together;
use crate::stats::{PeerCounters, ProcessCounters};

/// Counters of a peer whose endpoint here has closed.
pub(crate) struct ClosedRow {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) checksum: Option<u8>,
    pub(crate) counters: PeerCounters,
    pub(crate) paths: Vec<PathRow>,
}

/// The counters.
#[derive(Default)]
pub struct Counters {
    pub(crate) process: ProcessCounters,
    /// Peers of closed endpoints.
    pub(crate) closed_rows: Vec<ClosedRow>,
    /// Sum over peers that left and over those of closed endpoints beyond the rows.
    pub(crate) past: Together,
}
