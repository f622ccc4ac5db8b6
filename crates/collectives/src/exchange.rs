//! An exchange: every rank sends bytes to all others, as simultaneous broadcasts of all ranks.

use crate::group::Agreed;
use crate::mpi::Mpi;
use crate::provider::{self, ENDED_WELL};
use crate::wait::Wait;
use std::ops::RangeInclusive;

/// Numbers of ranks for which an exchange pays: with more ranks, receiving all packets costs more
/// than the saved round trips.
pub const RANKS: RangeInclusive<usize> = crate::group::RANKS_MIN..=8;

/// Broadcasts the bytes of each rank to all. Those of rank r, `len` bytes, go to `base + r *
/// stride`. Returns the worst result of all broadcasts; `None`: one could not be begun.
///
/// # Safety
/// There is room for all parts at `base` until this returns; this rank's part is not written.
pub unsafe fn exchange(
    mpi: &Mpi,
    (group, agreed): (isize, &Agreed),
    own: &mut [u8],
    (base, len, stride): (*mut u8, usize, usize),
) -> Option<isize> {
    let provider = provider::find()?;
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
    let mut wait = Wait::new((mpi, provider), len * agreed.ranks);
    let mut worst = Some(ENDED_WELL);
    for op in begun {
        let end = op.map(|op| loop {
            match (provider.test)(group, op) {
                0 => wait.look(),
                end => break end,
            }
        });
        worst = worst.zip(end).map(|(worst, end)| worst.max(end));
    }
    worst
}
