//! `fid_fabric`: the root object. It holds no state of the engine.

use crate::boundary::Health;
use crate::object::{self, Object};
use crate::sys::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The part of a fabric that its domains and event queues keep alive. As long as one of them holds
/// it, closing the fabric is refused.
#[derive(Default)]
pub(crate) struct FabricShared {
    health: Health,
    lent: AtomicBool,
}

impl FabricShared {
    /// A domain is used by another part of the application as well, which has a fabric of its own.
    /// Whoever opened this one may close it first: Open MPI's mtl/ofi does, before btl/ofi.
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
        // In a forked child the domains of its parent stay, closed or not.
        let FabricShared { health, lent } = &*self.shared;
        Arc::strong_count(&self.shared) > 1 && !health.is_forked() && !lent.load(Ordering::Relaxed)
    }
}

/// Reads what children need: a handle that keeps the fabric open, and the API version.
///
/// # Safety
/// `fabric` was made by [`open`].
pub(crate) unsafe fn of(fabric: *mut fid_fabric) -> (Arc<FabricShared>, u32) {
    // SAFETY: the caller's promise.
    let fabric = unsafe { object::of::<Fabric>(fabric) };
    (fabric.shared.clone(), fabric.fid.api_version)
}
