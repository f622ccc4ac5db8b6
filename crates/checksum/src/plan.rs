//! Which loop [`crate::copy_and_sum`] takes on this machine: fused, or block by block.
//!
//! That is a property of the processor, as the tier of kernels is, and so it is kept for the
//! process. Nothing is set unless somebody measured (`marline tune`): then all is fused.

use crate::{Algorithm, Summer};
use std::sync::atomic::{AtomicU64, Ordering};

/// How one algorithm copies and sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From so many bytes on block by block; `None`: always fused.
    pub blocked_from: Option<usize>,
    /// Bytes of a block, a multiple of [`Plan::BLOCK_STEP`], so that every block but the last
    /// starts on a whole cache line if the first does.
    pub block_bytes: usize,
}

impl Plan {
    /// Everything in one loop.
    pub const FUSED: Plan = Plan {
        blocked_from: None,
        block_bytes: 4096,
    };
    /// Shorter copies are fused in any case: there is nothing to divide, and they do not even
    /// look at the plan.
    pub const BLOCKED_MIN: usize = 1024;
    /// Blocks are multiples of this.
    pub const BLOCK_STEP: usize = 64;
    /// Largest block; more does not stay in any first-level cache.
    pub const BLOCK_MAX: usize = 256 << 10;

    /// Whether [`set_plan`] takes it.
    pub fn is_valid(&self) -> bool {
        let block = self.block_bytes;
        let fits = (Plan::BLOCK_STEP..=Plan::BLOCK_MAX).contains(&block);
        fits && block.is_multiple_of(Plan::BLOCK_STEP)
            && self.blocked_from.is_none_or(|n| n >= Plan::BLOCKED_MIN)
    }

    /// High half: blocked from, in bytes (0: never; lengths that do not fit are never reached).
    /// Low half: bytes of a block.
    fn pack(&self) -> u64 {
        let from = self
            .blocked_from
            .map_or(0, |n| u32::try_from(n).unwrap_or(0));
        (from as u64) << 32 | self.block_bytes as u64
    }
}

const NUMBERS: usize = 32;
/// By algorithm number; 0 stands for [`Plan::FUSED`].
static PLANS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// Sets how this process copies and sums with `algorithm`; false, and nothing changes, for a plan
/// that is not valid. Results are the same whatever the plan, so threads need not agree on when.
pub fn set_plan(algorithm: Algorithm, plan: Plan) -> bool {
    if !plan.is_valid() {
        return false;
    }
    PLANS[algorithm as usize % NUMBERS].store(plan.pack(), Ordering::Relaxed);
    true
}

/// What [`set_plan`] set.
pub fn plan(algorithm: Algorithm) -> Plan {
    match PLANS[algorithm as usize % NUMBERS].load(Ordering::Relaxed) {
        0 => Plan::FUSED,
        packed => Plan {
            blocked_from: Some((packed >> 32) as usize).filter(|n| *n > 0),
            block_bytes: packed as u32 as usize,
        },
    }
}

/// Bytes of a block, if `len` bytes are to be copied block by block.
#[inline]
pub(crate) fn block_for(algorithm: Algorithm, len: usize) -> Option<usize> {
    if len < Plan::BLOCKED_MIN {
        return None;
    }
    let packed = PLANS[algorithm as usize % NUMBERS].load(Ordering::Relaxed);
    let from = (packed >> 32) as usize;
    (from != 0 && len >= from).then_some(packed as u32 as usize)
}

/// Copies a block by memcpy, then sums it where it was written, and so on (section 4.1 of paper 0,
/// section 5.3 of paper 2); the sum of all.
///
/// # Safety
/// `src` readable and `dst` writable for `len` bytes, not overlapping. `block` above 0.
#[inline(never)]
pub(crate) unsafe fn copy_blocks_and_sum(
    algorithm: Algorithm,
    seed: u64,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    block: usize,
) -> u64 {
    let mut summer = Summer::new(algorithm, seed);
    let mut at = 0;
    while at < len {
        let n = block.min(len - at);
        // SAFETY: the block ends at or before `len`. What is summed is what was written, so sum
        // and copy see the same bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), n);
            summer.update(std::slice::from_raw_parts(dst.add(at), n));
        }
        at += n;
    }
    summer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{copy_and_sum, sum};

    #[test]
    fn a_plan_changes_the_way_and_not_the_result() {
        let src: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 300) as u8).collect();
        // Fewer where each step is interpreted.
        let lens: &[usize] = match cfg!(miri) {
            true => &[1, 1024, 1100],
            false => &[0, 1, 1023, 1024, 2047, 2048, 2049, 4096, 9_999],
        };
        for algorithm in Algorithm::all() {
            for plan in [
                Plan {
                    blocked_from: Some(2048),
                    block_bytes: 1024,
                },
                Plan {
                    blocked_from: Some(1024),
                    block_bytes: 64,
                },
                Plan::FUSED,
            ] {
                assert!(set_plan(algorithm, plan));
                assert_eq!(super::plan(algorithm), plan);
                for &len in lens {
                    let mut dst = vec![0; len];
                    // SAFETY: both have at least `len` bytes.
                    let got =
                        unsafe { copy_and_sum(algorithm, 5, dst.as_mut_ptr(), src.as_ptr(), len) };
                    assert_eq!(got, sum(algorithm, 5, &src[..len]), "{algorithm} {len}");
                    assert!(dst == src[..len], "{algorithm} {len}");
                }
            }
        }
    }

    #[test]
    fn plans_of_no_sense_are_refused() {
        let before = plan(Algorithm::Knuth);
        for (blocked_from, block_bytes) in [
            (Some(1023), 4096),
            (Some(4096), 0),
            (None, 100),
            (Some(4096), 1 << 30),
        ] {
            assert!(!set_plan(
                Algorithm::Knuth,
                Plan {
                    blocked_from,
                    block_bytes
                }
            ));
        }
        assert_eq!(plan(Algorithm::Knuth), before);
    }

    #[test]
    fn every_algorithm_has_a_place() {
        assert!(Algorithm::all().all(|a| (a as usize) < NUMBERS));
    }
}
