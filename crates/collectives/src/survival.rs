//! The MPI's functions for jobs that outlive a rank (MPI's chapter on process failure, as in Open
//! MPI): waits end if the MPI reports that a rank is dead or that the communicator is revoked.

use crate::abi::{Handle, SUCCESS};
use marline_symbols::function;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

type FlagFn = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type FailedFn = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type GroupFn = unsafe extern "C" fn(*mut Handle) -> c_int;
type GroupSizeFn = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;

/// The MPI's functions for jobs that outlive a rank.
pub struct Survival {
    pub agree: FlagFn,
    is_revoked: FlagFn,
    failed: FailedFn,
    size: GroupSizeFn,
    free: GroupFn,
}

impl Survival {
    /// The functions; `None`: the MPI lacks some of them.
    pub fn find() -> Option<Survival> {
        // SAFETY: functions of these names have these types in Open MPI, which alone has all.
        unsafe {
            Some(Survival {
                is_revoked: transmute::<*mut c_void, FlagFn>(function(c"PMPIX_Comm_is_revoked")?),
                agree: transmute::<*mut c_void, FlagFn>(function(c"PMPIX_Comm_agree")?),
                failed: transmute::<*mut c_void, FailedFn>(function(c"PMPIX_Comm_get_failed")?),
                size: transmute::<*mut c_void, GroupSizeFn>(function(c"PMPI_Group_size")?),
                free: transmute::<*mut c_void, GroupFn>(function(c"PMPI_Group_free")?),
            })
        }
    }

    /// Returns whether the MPI's own collective calls on a communicator fail from now on at this
    /// rank, because a rank is dead or the communicator is revoked.
    pub fn is_broken(&self, comm: Handle) -> bool {
        let (mut revoked, mut size, mut failed) = (0, 0, 0);
        // SAFETY: each writes one int or one handle; the group is freed once.
        unsafe {
            let _ = (self.is_revoked)(comm, &mut revoked);
            if revoked == 0 && (self.failed)(comm, &mut failed) == SUCCESS {
                let _ = (self.size)(failed, &mut size);
                let _ = (self.free)(&mut failed);
            }
        }
        revoked != 0 || size > 0
    }
}

/// The outcome of an agreement of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All survivors have this.
    Reached(c_int),
    /// The agreement failed at all survivors.
    Failed,
    /// The agreement failed at this rank, but may have been reached at others.
    Unknown,
}
