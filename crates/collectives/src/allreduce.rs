//! `MPI_Allreduce` of few bytes: all ranks broadcast their parts at once, and each reduces all
//! parts in rank order (docs/design/collectives.md). So it takes one trip through the network, and
//! all ranks get identical bits.

use crate::bcast::conclude;
use crate::calls::{self, Call};
use crate::exchange::{self, exchange};
use crate::group;
use crate::mpi::{Handle, Mpi, SUCCESS};
use crate::provider::ENDED_WELL;
use std::ffi::{c_int, c_void};

/// Range of lengths: for more bytes the MPI's own algorithm is faster, and for fewer too if that
/// MPI is fast.
const LEN_MAX: usize = 2_048;
const LEN_MIN: usize = 9;
/// Alignment of the parts, sufficient for any element type.
const ALIGNMENT: usize = align_of::<u128>();

/// The arguments of `MPI_Allreduce`, or of `MPI_Allreduce_c`.
#[derive(Clone, Copy)]
pub struct Allreduce {
    pub from: *const c_void,
    pub to: *mut c_void,
    pub count: isize,
    pub datatype: Handle,
    pub op: Handle,
    pub comm: Handle,
}

/// Reduces by multicast. Returns the result of `MPI_Allreduce`; `None`: all ranks use the MPI's own
/// call (all decide alike, since all pass the same count, datatype and operation).
///
/// # Safety
///
/// As for `MPI_Allreduce`.
pub unsafe fn reduce(mpi: &Mpi, asked: &Allreduce) -> Option<c_int> {
    if !calls::are_asked_for() {
        return None;
    }
    mpi.world()?;
    let (op, comm) = (mpi.handle(asked.op), mpi.handle(asked.comm));
    let datatype = mpi.handle(asked.datatype);
    // User-defined operations must be called as often as the program expects.
    if !mpi.is_own_op(op) {
        return None;
    }
    let count = usize::try_from(asked.count).ok().filter(|n| *n > 0)?;
    let layout = mpi.layout(datatype).filter(|layout| layout.is_plain)?;
    let len = count.checked_mul(layout.size)?;
    let least = if mpi.is_quick() { LEN_MIN } else { 1 };
    if !(least..=LEN_MAX).contains(&len) {
        return None;
    }
    let agreed = group::in_time(mpi, comm, exchange::RANKS)?;
    let group = agreed.group_for(Call::Allreduce)?;
    let stride = len.next_multiple_of(ALIGNMENT);
    let mut parts = vec![0u128; stride * agreed.ranks / ALIGNMENT];
    let base: *mut u8 = parts.as_mut_ptr().cast();
    // SAFETY: a part of `parts`.
    let part = |rank: usize| unsafe { base.add(rank * stride) };
    let from = match mpi.is_in_place(asked.from) {
        true => asked.to.cast_const(),
        false => asked.from,
    };
    // SAFETY: the caller's promise; `parts` lives until this returns.
    let end = unsafe {
        let mut own = std::slice::from_raw_parts(from.cast::<u8>(), len).to_vec();
        std::ptr::copy_nonoverlapping(own.as_ptr(), part(agreed.rank), len);
        exchange(mpi, (group, agreed), &mut own, (base, len, stride))
    };
    if end != Ok(ENDED_WELL) {
        return conclude(mpi, agreed, comm, end);
    }
    let last = part(agreed.ranks - 1);
    let all = (last.cast(), count as c_int, datatype);
    for rank in (0..agreed.ranks - 1).rev() {
        // SAFETY: distinct elements of `parts`.
        let code = unsafe { mpi.reduce_local(part(rank).cast(), all, op) };
        if code != SUCCESS {
            return Some(code);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(last, asked.to.cast(), len) };
    Some(SUCCESS)
}
