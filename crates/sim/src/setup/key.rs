//! The key of a simulated job.

use super::choices::Setup;
use marline_auth::{JobKey, JOB_KEY_LEN};

/// The key of all engines.
const JOB_KEY: [u8; JOB_KEY_LEN] = [0x5a; JOB_KEY_LEN];

/// The key of the job, if packets have tags.
pub(crate) fn job_key(setup: &Setup) -> Option<JobKey> {
    let key = JobKey::new(JOB_KEY);
    (setup.node.key_mark != 0).then(|| key.at(setup.level))
}
