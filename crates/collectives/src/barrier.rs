//! `MPI_Barrier`: an exchange of one byte per rank (docs/design/collectives.md).

use crate::bcast::conclude;
use crate::calls::{self, Call};
use crate::exchange::{self, exchange};
use crate::group;
use crate::mpi::{Handle, Mpi, SUCCESS};
use crate::provider::ENDED_WELL;
use std::ffi::c_int;

/// Waits for all ranks by multicast. Returns the result of `MPI_Barrier`; `None`: all ranks use the
/// MPI's own call.
pub fn wait(mpi: &Mpi, comm: Handle) -> Option<c_int> {
    if !calls::are_asked_for() {
        return None;
    }
    mpi.world()?;
    let comm = mpi.handle(comm);
    if mpi.is_quick() {
        return None;
    }
    let agreed = group::in_time(mpi, comm, exchange::RANKS)?;
    let group = agreed.group_for(Call::Barrier)?;
    let mut bytes = [0; *exchange::RANKS.end()];
    let own = &mut [0];
    // SAFETY: a byte for each rank.
    let end = unsafe { exchange(mpi, (group, agreed), own, (bytes.as_mut_ptr(), 1, 1)) };
    match end {
        Ok(ENDED_WELL) => Some(SUCCESS),
        end => conclude(mpi, agreed, comm, end),
    }
}
