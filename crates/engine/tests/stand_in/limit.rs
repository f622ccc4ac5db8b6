//! A limit to loops that wait for something, so that a test that waits in vain fails.

use std::time::{Duration, Instant};

/// Far more than any wait takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs out after [`LIMIT`].
pub struct Limit(Instant);

impl Limit {
    /// Begins now.
    pub fn begin() -> Limit {
        Limit(Instant::now())
    }

    /// Panics once the time is over; `what` names the event that has not come.
    pub fn check(&self, what: &str) {
        assert!(self.0.elapsed() < LIMIT, "{what} within {LIMIT:?}");
    }
}
