//! The key of direct writes.

use crate::job::JobKey;
use crate::key::HeadKey;

/// The key of the heads of a job's direct writes. Heads name registered memory by a random key of
/// 64 bits that no other registration has, in which bytes land once; so a head needs no number.
/// Wiped when dropped.
#[derive(Debug)]
pub struct DirectKey(HeadKey);

impl DirectKey {
    /// The key in the job with this key.
    pub fn new(job: &JobKey) -> DirectKey {
        DirectKey(job.direct_writes())
    }

    /// The tag over a head's fields.
    #[inline]
    pub fn tag(&self, fields: &[u8]) -> u64 {
        self.0.tag(fields)
    }
}

impl Drop for DirectKey {
    fn drop(&mut self) {
        self.0.wipe();
    }
}
