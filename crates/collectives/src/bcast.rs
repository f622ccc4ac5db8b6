//! `MPI_Bcast` by multicast, and the completion of all multicast calls.

use crate::calls::Call;
use crate::group;
use crate::mpi::{Handle, Mpi, SUCCESS};
use crate::provider::{self, ENDED_DEAD, ENDED_MISMATCH, ENDED_NOT_CARRIED, ENDED_WELL};
use crate::wait::{Stop, Wait};
use marline_codes::Code;
use std::ffi::{c_int, c_void};

/// The arguments of `MPI_Bcast`, or of `MPI_Bcast_c`.
#[derive(Clone, Copy)]
pub struct Bcast {
    pub buffer: *mut c_void,
    pub count: isize,
    pub datatype: Handle,
    pub root: c_int,
    pub comm: Handle,
}

impl Bcast {
    /// The same arguments with normalised handles.
    pub fn of(&self, mpi: &Mpi) -> Bcast {
        Bcast {
            datatype: mpi.handle(self.datatype),
            comm: mpi.handle(self.comm),
            ..*self
        }
    }

    /// The number of elements, their bytes, and whether they are contiguous. `None`: there is
    /// nothing that a group could broadcast.
    pub fn size(&self, mpi: &Mpi) -> Option<(c_int, usize, bool)> {
        mpi.world()?;
        let count = usize::try_from(self.count).ok().filter(|n| *n > 0)?;
        let layout = mpi.layout(self.datatype)?;
        let len = count.checked_mul(layout.size).filter(|n| *n > 0)?;
        // A longer message could not be packed on ranks where the datatype has gaps.
        c_int::try_from(len).ok()?;
        Some((c_int::try_from(count).ok()?, len, layout.is_plain))
    }
}

/// Does a broadcast by multicast. Returns the result of `MPI_Bcast`; `None`: all ranks use the
/// MPI's own call. Invalid arguments also give `None`, so that the MPI reports them.
///
/// # Safety
///
/// As for `MPI_Bcast`.
pub unsafe fn broadcast(mpi: &Mpi, asked: &Bcast) -> Option<c_int> {
    let asked = asked.of(mpi);
    let Bcast { comm, datatype, .. } = asked;
    let (count, len, is_plain) = asked.size(mpi)?;
    let agreed = group::for_bcast(mpi, comm, len)?;
    let root = usize::try_from(asked.root)
        .ok()
        .filter(|r| *r < agreed.ranks)?;
    let group = agreed.group_for(Call::Bcast)?;
    if is_plain {
        // SAFETY: the caller's buffer has this many bytes, and stays valid until this returns.
        let end = unsafe { run(mpi, (group, agreed), root, asked.buffer, len) };
        return conclude(mpi, agreed, comm, end);
    }
    let mut packed = vec![0; len];
    let elements = (asked.buffer, count, datatype);
    if root == agreed.rank {
        // SAFETY: the caller's promise.
        let ok = unsafe { mpi.pack((elements.0, elements.1, elements.2), &mut packed, comm) };
        if !ok {
            return Some(mpi.fail(comm, true));
        }
    }
    // SAFETY: `packed` lives until this returns.
    let end = unsafe { run(mpi, (group, agreed), root, packed.as_mut_ptr().cast(), len) };
    if end == Ok(ENDED_WELL) && root != agreed.rank {
        // SAFETY: the caller's promise.
        if !unsafe { mpi.unpack(&packed, elements, comm) } {
            return Some(mpi.fail(comm, true));
        }
    }
    conclude(mpi, agreed, comm, end)
}

/// Runs a broadcast to its end. Returns its result code of the provider.
///
/// # Safety
/// There are `len` bytes at `base` until this returns.
unsafe fn run(
    mpi: &Mpi,
    (group, agreed): (isize, &group::Agreed),
    root: usize,
    base: *mut c_void,
    len: usize,
) -> Result<isize, Stop> {
    let dead = Stop::Code(mpi.dead());
    let provider = provider::find().ok_or(dead)?;
    // SAFETY: the caller's promise; the broadcast has ended before this returns.
    let op = unsafe { provider.post(group, root, base, len) }.ok_or(dead)?;
    let mut wait = Wait::new((mpi, provider, Some(agreed.comm())), len);
    agreed.wait_for(provider, &mut wait, (group, op))
}

/// Ends a call, given the worst result of its broadcasts. Returns the call's result; `None`: all
/// ranks use the MPI's own call.
pub fn conclude(
    mpi: &Mpi,
    agreed: &group::Agreed,
    comm: Handle,
    end: Result<isize, Stop>,
) -> Option<c_int> {
    match end {
        Ok(ENDED_WELL) => Some(SUCCESS),
        Ok(ENDED_NOT_CARRIED) => {
            if agreed.rank == 0 && agreed.group().is_some() {
                let text = format!(
                    "the network does not carry multicast between {} ranks any more: all of \
                     theirs goes point to point",
                    agreed.ranks
                );
                crate::guard::say(Code::NoMulticast, &text);
            }
            agreed.leave();
            None
        }
        Ok(ENDED_MISMATCH) => Some(mpi.fail(comm, true)),
        Ok(end) => {
            report_death(end, (agreed.rank, agreed.ranks));
            let code = if end >= ENDED_DEAD {
                mpi.dead()
            } else {
                mpi.code(false)
            };
            Some(mpi.fail_with(comm, code))
        }
        Err(Stop::Code(code)) => Some(mpi.fail_with(comm, code)),
        Err(Stop::Theirs) => None,
    }
}

/// If `end` says so, tells the user that a broadcast of this rank ended because a peer is dead.
pub fn report_death(end: isize, (rank, ranks): (usize, usize)) {
    if let Some(dead) = end.checked_sub(ENDED_DEAD).filter(|dead| *dead >= 0) {
        let text = format!(
            "rank {rank} of {ranks}: a broadcast ends with an error, as its peer, rank {dead}, is \
             dead"
        );
        crate::guard::say(Code::PeerDead, &text);
    }
}
