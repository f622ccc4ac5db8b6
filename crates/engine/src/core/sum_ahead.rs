//! Sums ahead of the grant: while the request of a rendezvous message is under way and polls find
//! nothing, the sums of its first fragments are made, which brings them into the cache, too.
//!
//! Paper 2 (section 5.3) does that where nothing is copied. Here each fragment is copied into the
//! staging buffer when it leaves, and its sum costs next to nothing in that copy: off by default
//! (see ARCHITECTURE.md, what changed). A sum is used once, at the first transmission.

use crate::api::EpId;
use crate::core::state::Core;
use crate::memory::op_table::Pieces;
use crate::platform::system::System;
use marline_checksum::{Algorithm, Summer};
use marline_proto::PeerId;

/// Bytes summed between two polls: a packet that arrives meanwhile waits less than a microsecond.
const STEP_BYTES: u32 = 16 * 1024;

/// The message that is summed, the newest one.
struct Job {
    ep: EpId,
    peer: PeerId,
    handle: u32,
    /// Algorithm and seed it was made with, and the sum; by fragment.
    sums: Vec<Option<(Algorithm, u64, u64)>>,
    fragment: u32,
    next: u64,
}

/// Sums made ahead.
pub(crate) struct Ahead {
    /// Bytes of a message that are summed ahead at most; 0: none.
    first_bytes: u32,
    job: Option<Job>,
}

impl Ahead {
    /// Sums up to so many bytes of a message.
    pub(crate) fn new(first_bytes: u32) -> Ahead {
        Ahead {
            first_bytes,
            job: None,
        }
    }

    /// A rendezvous message was posted.
    pub(crate) fn begin(&mut self, ep: EpId, peer: PeerId, handle: u32) {
        if self.first_bytes > 0 {
            self.job = Some(Job {
                ep,
                peer,
                handle,
                sums: Vec::new(),
                fragment: 0,
                next: 0,
            });
        }
    }

    /// The sum of a fragment of send `handle`, if it was made ahead; once.
    #[inline]
    pub(crate) fn take(
        &mut self,
        handle: u32,
        offset: u64,
        seed: u64,
        algorithm: Algorithm,
    ) -> Option<u64> {
        let job = self.job.as_mut().filter(|j| j.handle == handle)?;
        let index = offset.checked_div(job.fragment as u64)? as usize;
        let (made, of, sum) = job.sums.get_mut(index)?.take()?;
        (made == algorithm && of == seed).then_some(sum)
    }
}

impl<S: System> Core<S> {
    /// Makes some sums, if a message waits for its grant.
    pub(crate) fn sum_ahead(&mut self) {
        let Some(mut job) = self.ahead.job.take() else {
            return;
        };
        let end = job.next + STEP_BYTES as u64;
        while job.next < end.min(self.ahead.first_bytes as u64) {
            if !self.sum_next(&mut job) {
                // Rkeys, ended, or not asked for yet: what is made stays for its fragments.
                break;
            }
        }
        self.ahead.job = Some(job);
    }

    fn sum_next(&mut self, job: &mut Job) -> bool {
        let node = self.eps.get(job.ep.0 as usize).and_then(Option::as_ref);
        let span = node.and_then(|e| e.node.ahead(job.peer, job.handle, job.next));
        let (Some(span), Some(op)) = (span, self.sends.get(job.handle)) else {
            return false;
        };
        let Some(algorithm) = Algorithm::from_u8(span.algorithm) else {
            return false;
        };
        job.fragment = job.fragment.max(span.len);
        let sum = sum_of(
            &op.pieces,
            job.next,
            span.len as usize,
            algorithm,
            span.seed,
        );
        job.sums.push(Some((algorithm, span.seed, sum)));
        job.next += span.len as u64;
        true
    }
}

fn sum_of(pieces: &Pieces, offset: u64, len: usize, algorithm: Algorithm, seed: u64) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    pieces.for_range(offset, len, |base, n| {
        // SAFETY: user memory lent to a send that is not complete; the pieces say how long it is.
        summer.update(unsafe { std::slice::from_raw_parts(base, n) });
    });
    summer.finish()
}
