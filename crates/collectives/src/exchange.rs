//! An exchange: every rank sends bytes to all others, as simultaneous broadcasts of all ranks.

use crate::group::Agreed;
use crate::mpi::Mpi;
use crate::provider::{self, ENDED_WELL};
use crate::wait::{Stop, Wait};
use std::ops::RangeInclusive;

/// Numbers of ranks for which an exchange pays: with more ranks, receiving all packets costs more
/// than the saved round trips.
pub const RANKS: RangeInclusive<usize> = crate::group::RANKS_MIN..=8;

/// Sends the bytes of each rank to all ranks. The parts of the other ranks arrive at `base`: `len`
/// bytes for each rank, at a distance of `stride` bytes in rank order. Returns the worst result of
/// all these broadcasts.
///
/// # Safety
///
/// There is room for all parts at `base` until this returns; this rank's part is not written.
pub unsafe fn exchange(
    mpi: &Mpi,
    (group, agreed): (isize, &Agreed),
    own: &mut [u8],
    (base, len, stride): (*mut u8, usize, usize),
) -> Result<isize, Stop> {
    let provider = provider::find().ok_or(Stop::Code(mpi.dead()))?;
    let post = |root| {
        // SAFETY: the caller's promise; every begun broadcast has ended before this returns.
        unsafe {
            let (from, len) = match root == agreed.rank {
                true => (own.as_mut_ptr(), own.len()),
                false => (base.add(root * stride), len),
            };
            provider.post(group, root, from.cast(), len)
        }
    };
    let begun: Vec<Option<isize>> = (0..agreed.ranks).map(post).collect();
    let mut wait = Wait::new((mpi, provider, Some(agreed.comm())), len * agreed.ranks);
    let mut worst = Ok(ENDED_WELL);
    for op in begun {
        let end = match op {
            Some(op) => agreed.wait_for(provider, &mut wait, (group, op))?,
            None => {
                worst = Err(Stop::Code(mpi.dead()));
                continue;
            }
        };
        worst = worst.map(|worst: isize| worst.max(end));
    }
    worst
}
