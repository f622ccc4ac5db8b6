//! The loop that [`crate::copy_and_sum`] uses on this machine: fused or block by block; and the
//! length from which it streams.
//!
//! The best loop is a property of the processor, as the tier of kernels is, so the plan is global
//! to the process. Without a measurement by `marline tune` it is [`Plan::usual`].

use crate::{stream_min_bytes, Algorithm};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How copies with one algorithm are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Copies of at least this many bytes are done block by block; `None`: always fused.
    pub blocked_from: Option<usize>,
    /// Bytes of a block, a multiple of [`Plan::BLOCK_STEP`], so that all blocks start on a cache
    /// line if the first does.
    pub block_bytes: usize,
    /// Copies of at least this many bytes use streaming stores, regardless of the other fields;
    /// `None`: never.
    pub stream_from: Option<usize>,
}

impl Plan {
    /// Always fused, without streaming.
    pub const FUSED: Plan = Plan {
        blocked_from: None,
        block_bytes: 4096,
        stream_from: None,
    };
    /// Shorter copies are always fused, without a look at the plan.
    pub const BLOCKED_MIN: usize = 1024;
    /// Blocks are multiples of this.
    pub const BLOCK_STEP: usize = 64;
    /// Largest block; larger ones do not fit into any L1 cache.
    pub const BLOCK_MAX: usize = 256 << 10;

    /// Copies shorter than this never stream, since they fit into caches, and need not look at the
    /// plan.
    pub const STREAM_LEAST: usize = 128 << 10;

    /// The plan without a measurement: fused. The CRCs and products, which have streaming kernels,
    /// stream from [`stream_min_bytes`] on.
    pub fn usual(algorithm: Algorithm) -> Plan {
        Plan {
            stream_from: algorithm.is_streamed().then(stream_min_bytes),
            ..Plan::FUSED
        }
    }

    /// Returns whether [`set_plan`] accepts the plan.
    pub fn is_valid(&self) -> bool {
        let block = self.block_bytes;
        let fits = (Plan::BLOCK_STEP..=Plan::BLOCK_MAX).contains(&block);
        fits && block.is_multiple_of(Plan::BLOCK_STEP)
            && self.blocked_from.is_none_or(|n| n >= Plan::BLOCKED_MIN)
            && self.stream_from.is_none_or(|n| n >= Plan::STREAM_LEAST)
    }

    /// High half: `blocked_from` in bytes (0: never, also for lengths that do not fit). Low half:
    /// `block_bytes`.
    fn pack(&self) -> u64 {
        let from = self
            .blocked_from
            .map_or(0, |n| u32::try_from(n).unwrap_or(0));
        (from as u64) << 32 | self.block_bytes as u64
    }
}

const NUMBERS: usize = 32;
/// By algorithm number; 0 means [`Plan::FUSED`].
static PLANS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// By algorithm number: [`Plan::stream_from`], or [`NEVER`]; 0 means the default.
static STREAMS: [AtomicUsize; NUMBERS] = [const { AtomicUsize::new(0) }; NUMBERS];
const NEVER: usize = usize::MAX;

/// Sets how this process copies and sums with `algorithm`. Returns `false` and changes nothing if
/// the plan is invalid. Results do not depend on the plan, so threads need not synchronise.
pub fn set_plan(algorithm: Algorithm, plan: Plan) -> bool {
    if !plan.is_valid() {
        return false;
    }
    let stream = plan.stream_from.unwrap_or(NEVER);
    PLANS[algorithm as usize % NUMBERS].store(plan.pack(), Ordering::Relaxed);
    STREAMS[algorithm as usize % NUMBERS].store(stream, Ordering::Relaxed);
    true
}

/// The plan set by [`set_plan`], or [`Plan::usual`].
pub fn plan(algorithm: Algorithm) -> Plan {
    let blocks = match PLANS[algorithm as usize % NUMBERS].load(Ordering::Relaxed) {
        0 => Plan::FUSED,
        packed => Plan {
            blocked_from: Some((packed >> 32) as usize).filter(|n| *n > 0),
            block_bytes: packed as u32 as usize,
            ..Plan::FUSED
        },
    };
    let stream_from = match STREAMS[algorithm as usize % NUMBERS].load(Ordering::Relaxed) {
        0 => Plan::usual(algorithm).stream_from,
        from => Some(from).filter(|n| *n != NEVER),
    };
    Plan {
        stream_from,
        ..blocks
    }
}

/// Returns whether a copy of `len` bytes streams.
#[inline]
pub(crate) fn streams(algorithm: Algorithm, len: usize) -> bool {
    len >= Plan::STREAM_LEAST && plan(algorithm).stream_from.is_some_and(|from| len >= from)
}

/// Bytes of a block, if `len` bytes are copied block by block.
#[inline]
pub(crate) fn block_for(algorithm: Algorithm, len: usize) -> Option<usize> {
    if len < Plan::BLOCKED_MIN {
        return None;
    }
    let packed = PLANS[algorithm as usize % NUMBERS].load(Ordering::Relaxed);
    let from = (packed >> 32) as usize;
    (from != 0 && len >= from).then_some(packed as u32 as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{copy_and_sum, sum};
    use std::sync::{Mutex, PoisonError};

    /// Plans are global to the process, so the tests that set one run one at a time.
    static PLANNING: Mutex<()> = Mutex::new(());

    #[test]
    fn a_plan_does_not_change_the_result() {
        let _alone = PLANNING.lock().unwrap_or_else(PoisonError::into_inner);
        let src: Vec<u8> = (0..140_000u32).map(|i| (i * 7 + i / 300) as u8).collect();
        // Fewer under an interpreter.
        let lens: &[usize] = match cfg!(miri) {
            true => &[1, 1024, 1100],
            false => &[
                0, 1, 1023, 1024, 2047, 2048, 2049, 4096, 131_071, 131_072, 139_999,
            ],
        };
        for algorithm in Algorithm::all().filter(|a| !(cfg!(miri) && a.is_keyed())) {
            for plan in [
                Plan {
                    blocked_from: Some(2048),
                    block_bytes: 1024,
                    stream_from: Some(Plan::STREAM_LEAST),
                },
                Plan {
                    blocked_from: Some(1024),
                    block_bytes: 64,
                    stream_from: None,
                },
                Plan::usual(algorithm),
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
    fn invalid_plans_are_rejected() {
        let _alone = PLANNING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = plan(Algorithm::Knuth);
        for (blocked_from, block_bytes, stream_from) in [
            (Some(1023), 4096, None),
            (Some(4096), 0, None),
            (None, 100, None),
            (Some(4096), 1 << 30, None),
            (None, 4096, Some(Plan::STREAM_LEAST - 1)),
            (None, 4096, Some(0)),
        ] {
            let plan = Plan {
                blocked_from,
                block_bytes,
                stream_from,
            };
            assert!(!set_plan(Algorithm::Knuth, plan), "{plan:?}");
        }
        assert_eq!(plan(Algorithm::Knuth), before);
    }

    #[test]
    fn the_plan_decides_what_streams() {
        let _alone = PLANNING.lock().unwrap_or_else(PoisonError::into_inner);
        let algorithm = Algorithm::Jenkins;
        let least = Plan::STREAM_LEAST;
        assert!(!streams(algorithm, usize::MAX), "no CRC");
        let plan = Plan {
            stream_from: Some(4 * least),
            ..Plan::FUSED
        };
        assert!(set_plan(algorithm, plan));
        assert!(streams(algorithm, 4 * least) && !streams(algorithm, 4 * least - 1));
        assert!(set_plan(algorithm, Plan::usual(algorithm)));
        assert!(!streams(algorithm, usize::MAX));
    }

    #[test]
    fn every_algorithm_has_a_place() {
        assert!(Algorithm::all().all(|a| (a as usize) < NUMBERS));
    }
}
