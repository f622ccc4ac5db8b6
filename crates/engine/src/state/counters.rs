//! Counters of the process and of closed endpoints.

use crate::stats::rows::PeerRow;
use crate::stats::waits::ProcessWaits;
use crate::stats::ProcessCounters;

/// The counters.
#[derive(Default)]
pub struct Counters {
    pub(crate) process: ProcessCounters,
    pub(crate) waits: ProcessWaits,
    /// Peers of closed endpoints.
    pub(crate) closed_rows: Vec<PeerRow>,
    /// Number of peers without rows of their own, those that left and those of closed endpoints
    /// beyond the limit, and the sum of their counters.
    pub(crate) past: (u64, PeerRow),
}

impl Counters {
    /// Adds a peer to the peers without a row.
    pub(crate) fn forget(&mut self, row: &PeerRow) {
        self.past.0 += 1;
        self.past.1.merge(row);
    }
}
