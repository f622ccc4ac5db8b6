//! `fid_fabric`: the root object, without engine state.

use crate::abi::*;
use crate::base::boundary::Health;
use crate::base::object::{self, Object};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The part of a fabric shared with its domains and event queues. Closing the fabric is refused
/// while one of them holds a share.
#[derive(Default)]
pub(crate) struct FabricShared {
    health: Health,
    lent: AtomicBool,
}

impl FabricShared {
    /// Marks that another part of the application uses a domain through a fabric of its own. This
    /// fabric may then be closed first, as Open MPI's mtl/ofi does before btl/ofi.
    pub(crate) fn lend(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }
}

#[repr(C)]
pub(crate) struct Fabric {
    pub fid: fid_fabric,
    pub shared: Arc<FabricShared>,
}

// SAFETY: `#[repr(C)]`, and fid_fabric begins with a fid.
unsafe impl Object for Fabric {
    type Fid = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;

    fn in_use(&self) -> bool {
        // A forked child never closes its parent's domains.
        let FabricShared { health, lent } = &*self.shared;
        Arc::strong_count(&self.shared) > 1 && !health.is_forked() && !lent.load(Ordering::Relaxed)
    }
}

/// Returns a share that keeps the fabric open, and the API version.
///
/// # Safety
/// `fabric` was made by [`open`].
pub(crate) unsafe fn of(fabric: *mut fid_fabric) -> (Arc<FabricShared>, u32) {
    // SAFETY: the caller's promise.
    let fabric = unsafe { object::of::<Fabric>(fabric) };
    (fabric.shared.clone(), fabric.fid.api_version)
}
