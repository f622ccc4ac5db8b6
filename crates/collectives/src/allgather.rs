//! `MPI_Allgather` of few bytes: all ranks broadcast their parts at once, and all parts arrive at
//! their places (docs/design/collectives.md).

use crate::bcast::conclude;
use crate::calls::{self, Call};
use crate::exchange::{self, exchange};
use crate::group;
use crate::mpi::{Handle, Mpi, SUCCESS};
use crate::provider::ENDED_WELL;
use std::ffi::{c_int, c_void};

/// Most bytes per rank; for more the MPI's own algorithm is faster.
const LEN_MAX: usize = 2_048;

/// The sending or receiving arguments: memory, and the count and type of the elements that each
/// rank has there.
#[derive(Clone, Copy)]
pub struct Side<B> {
    pub buffer: B,
    pub count: isize,
    pub datatype: Handle,
}

impl<B> Side<B> {
    /// The number of elements per rank, their bytes, and whether they are contiguous.
    fn size(&self, mpi: &Mpi) -> Option<(c_int, usize, bool)> {
        let layout = mpi.layout(mpi.handle(self.datatype))?;
        let count = usize::try_from(self.count).ok()?;
        let len = count.checked_mul(layout.size)?;
        Some((c_int::try_from(count).ok()?, len, layout.is_plain))
    }
}

/// Gathers by multicast. Returns the result of `MPI_Allgather`; `None`: all ranks use the MPI's own
/// call (all decide alike, since all receive the same number of bytes from each rank).
///
/// # Safety
///
/// As for `MPI_Allgather`.
pub unsafe fn gather(
    mpi: &Mpi,
    from: Side<*const c_void>,
    to: Side<*mut c_void>,
    comm: Handle,
) -> Option<c_int> {
    if !calls::are_asked_for() {
        return None;
    }
    mpi.world()?;
    let comm = mpi.handle(comm);
    if mpi.is_quick() {
        return None;
    }
    let (count, len, is_plain) = to.size(mpi)?;
    if !(1..=LEN_MAX).contains(&len) {
        return None;
    }
    let agreed = group::in_time(mpi, comm, exchange::RANKS)?;
    let group = agreed.group_for(Call::Allgather)?;
    let elements = (
        to.buffer,
        count * agreed.ranks as c_int,
        mpi.handle(to.datatype),
    );
    let mut all = vec![0; if is_plain { 0 } else { len * agreed.ranks }];
    let base = match is_plain {
        true => to.buffer.cast::<u8>(),
        false => all.as_mut_ptr(),
    };
    let in_place = mpi.is_in_place(from.buffer);
    if in_place && !is_plain {
        // SAFETY: the caller's promise.
        unsafe { mpi.pack((elements.0, elements.1, elements.2), &mut all, comm) };
    }
    // SAFETY: a part of the memory at `base`.
    let place = unsafe { base.add(agreed.rank * len) };
    // SAFETY: the caller's promise, and the bytes of this rank at `base`.
    let own = unsafe {
        match in_place {
            true => Some(std::slice::from_raw_parts(place, len).to_vec()),
            false => packed(mpi, from, comm),
        }
    };
    // The other ranks wait for this part: a part of a wrong length tells them that this rank
    // failed.
    let mut own = own
        .filter(|own| own.len() == len)
        .unwrap_or_else(|| vec![0; len + 1]);
    // SAFETY: there is room for all parts, and one of them is this rank's.
    let end = unsafe {
        let end = exchange(mpi, (group, agreed), &mut own, (base, len, len));
        std::ptr::copy_nonoverlapping(own.as_ptr(), place, len.min(own.len()));
        end
    };
    if end != Ok(ENDED_WELL) {
        return conclude(mpi, agreed, comm, end);
    }
    // SAFETY: the caller's promise.
    let well = own.len() == len && (is_plain || unsafe { mpi.unpack(&all, elements, comm) });
    Some(if well { SUCCESS } else { mpi.fail(comm, true) })
}

/// The contiguous bytes of this rank's part.
///
/// # Safety
/// As for `MPI_Allgather`.
unsafe fn packed(mpi: &Mpi, from: Side<*const c_void>, comm: Handle) -> Option<Vec<u8>> {
    let (count, len, is_plain) = from.size(mpi)?;
    let mut bytes = vec![0; len];
    let datatype = mpi.handle(from.datatype);
    // SAFETY: the caller's promise: there are `count` elements, contiguous if `is_plain`.
    let well = unsafe {
        if is_plain {
            std::ptr::copy_nonoverlapping(from.buffer.cast(), bytes.as_mut_ptr(), len);
        }
        is_plain || mpi.pack((from.buffer, count, datatype), &mut bytes, comm)
    };
    well.then_some(bytes)
}
