//! Time limit for loops that wait, so that a test that waits in vain fails.

use std::time::{Duration, Instant};

/// Far longer than any wait, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Expires after [`LIMIT`].
pub struct Limit(Instant);

impl Limit {
    /// Starts the limit.
    pub fn begin() -> Limit {
        Limit(Instant::now())
    }

    /// Panics after the limit; `what` names the missing event.
    pub fn check(&self, what: &str) {
        assert!(self.0.elapsed() < LIMIT, "{what} within {LIMIT:?}");
    }
}
