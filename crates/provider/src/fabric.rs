//! `fid_fabric`: the root object. It holds no state of the engine.

use crate::boundary::{guard_free, Errno};
use crate::log::trace;
use crate::sys::*;
use crate::{domain, eq};
use std::ffi::{c_int, c_void, CStr};
use std::mem::size_of;
use std::sync::Arc;

/// What domains and event queues keep alive of a fabric: closing it too early is refused.
pub(crate) struct FabricShared;

#[repr(C)]
pub(crate) struct Fabric {
    fid: fid_fabric,
    pub shared: Arc<FabricShared>,
}

static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: no_bind,
    control: no_control,
    ops_open: absent,
    tostr: absent,
    ops_set: absent,
};

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: domain::open,
    passive_ep: absent,
    eq_open: eq::open,
    wait_open: absent,
    trywait,
    domain2: absent,
};

/// See [`Absent`].
pub(crate) unsafe extern "C" fn absent() -> isize {
    -(libc::ENOSYS as isize)
}

/// `bind` of objects that nothing is bound to.
pub(crate) unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -libc::ENOSYS
}

/// `control` of objects without commands.
pub(crate) unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}

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
            let fid = fid {
                fclass: FI_CLASS_FABRIC,
                context,
                ops: &FID_OPS,
            };
            let fabric = Fabric {
                fid: fid_fabric {
                    fid,
                    ops: &OPS,
                    api_version,
                },
                shared: Arc::new(FabricShared),
            };
            *out = Box::into_raw(Box::new(fabric)).cast();
        }
        Ok(0)
    })
}

/// Reads what children need: a handle that keeps the fabric open, and the API version.
///
/// # Safety
/// `fabric` was made by [`open`].
pub(crate) unsafe fn of(fabric: *mut fid_fabric) -> (Arc<FabricShared>, u32) {
    // SAFETY: the caller's promise; fid_fabric is the first field.
    let fabric = unsafe { &*fabric.cast::<Fabric>() };
    (fabric.shared.clone(), fabric.fid.api_version)
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_free(|| {
        trace!("fabric close");
        let fabric = fid.cast::<Fabric>();
        // SAFETY: made by `open`; the caller gives it up unless we answer busy.
        unsafe {
            if Arc::strong_count(&(*fabric).shared) > 1 {
                return Err(Errno::BUSY);
            }
            drop(Box::from_raw(fabric));
        }
        Ok(0)
    })
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
