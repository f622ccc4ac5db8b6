//! An exchange: every rank has something for all others, which is a broadcast of each, all begun at
//! once.

use crate::mpi::Mpi;
use crate::provider::{self, ENDED_WELL};
use crate::wait::Wait;

/// Brings a part of each rank's to all: `len` bytes of so many, `stride` bytes after those of the
/// rank before. The worst end of all their broadcasts; `None`: one could not be begun.
///
/// # Safety
/// There is room for all parts at `base` until this returns.
pub unsafe fn exchange(
    mpi: &Mpi,
    (group, ranks): (isize, usize),
    base: *mut u8,
    (len, stride): (usize, usize),
) -> Option<isize> {
    let provider = provider::find()?;
    let post = |root| {
        // SAFETY: the caller's promise; what was begun has ended before this returns.
        unsafe { provider.post(group, root, base.add(root * stride).cast(), len) }
    };
    let begun: Vec<Option<isize>> = (0..ranks).map(post).collect();
    let mut wait = Wait::new(mpi, provider, len * ranks);
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
