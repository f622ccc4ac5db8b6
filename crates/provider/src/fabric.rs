//! `fid_fabric`: the root object. It holds no state of the engine.

use crate::boundary::{guard_free, Errno, Health};
use crate::log::trace;
use crate::object::{self, absent, Object};
use crate::sys::*;
use crate::{domain, eq};
use std::ffi::{c_int, c_void, CStr};
use std::mem::size_of;
use std::sync::Arc;

/// What domains and event queues keep alive of a fabric: closing it too early is refused.
#[derive(Default)]
pub(crate) struct FabricShared(Health);

#[repr(C)]
pub(crate) struct Fabric {
    fid: fid_fabric,
    pub shared: Arc<FabricShared>,
}

// SAFETY: `#[repr(C)]`, and fid_fabric begins with a fid.
unsafe impl Object for Fabric {
    type Fid = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;

    fn in_use(&self) -> bool {
        // In a forked child the domains of its parent stay, closed or not.
        Arc::strong_count(&self.shared) > 1 && !self.shared.0.is_forked()
    }
}

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: domain::open,
    passive_ep: absent,
    eq_open: eq::open,
    wait_open: absent,
    trywait,
    domain2: absent,
};

/// `fi_provider.fabric`.
pub(crate) unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    guard_free(|| {
        if attr.is_null() || out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: checked for null; libfabric passes valid pointers and names.
        unsafe {
            let name = (*attr).name;
            if !name.is_null() && CStr::from_ptr(name) != crate::NAME {
                return Err(Errno::NODATA);
            }
            let api_version = (*attr).api_version;
            trace!("fabric open, API version {api_version:#x}");
            let fabric = Fabric {
                fid: fid_fabric {
                    fid: object::header::<Fabric>(context),
                    ops: &OPS,
                    api_version,
                },
                shared: Arc::<FabricShared>::default(),
            };
            object::give(fabric, out);
        }
        Ok(0)
    })
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

/// There are no file descriptors to wait on, so nothing can be lost by waiting.
unsafe extern "C" fn trywait(_: *mut fid_fabric, _: *mut *mut fid, _: c_int) -> c_int {
    0
}

/// `fi_provider.cleanup`, before libfabric unloads us: no thread of ours may run afterwards.
pub(crate) unsafe extern "C" fn cleanup() {
    let _: c_int = guard_free(|| {
        domain::close_all();
        Ok(0)
    });
}
