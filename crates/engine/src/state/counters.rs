//! Counters of the process, and of what is closed.

use crate::stats::page::PathRow;
use crate::stats::peer_rows::Together;
use crate::stats::{PeerCounters, ProcessCounters};

/// Counters that are kept of a peer when our endpoint has closed.
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
    /// Of peers of endpoints that were closed.
    pub(crate) closed_rows: Vec<ClosedRow>,
    /// Of those that left, and of closed ones beyond the rows.
    pub(crate) past: Together,
}
