//! Opens a fabric, and ends everything before libfabric unloads the library.

use crate::abi::*;
use crate::base::boundary::{guard_free, Errno};
use crate::base::log::trace;
use crate::base::object::{self, absent};
use crate::base::{about, log};
use crate::objects::fabric::{Fabric, FabricShared};
use crate::objects::{domain, domain_open};
use crate::queues::{eq, poll};
use std::ffi::{c_int, c_void, CStr};
use std::mem::size_of;
use std::sync::Arc;

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: domain_open::open,
    passive_ep: absent,
    eq_open: eq::open,
    wait_open: absent,
    trywait: poll::trywait,
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
            if !name.is_null() && CStr::from_ptr(name) != about::NAME {
                return Err(Errno::NODATA);
            }
            let api_version = (*attr).api_version;
            log::info(&format!("Marline {}", marline_version::TEXT));
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

/// `fi_provider.cleanup`, called before libfabric unloads the provider: no thread of the provider
/// may run afterwards.
pub(crate) unsafe extern "C" fn cleanup() {
    let _: c_int = guard_free(|| {
        domain::close_all();
        Ok(0)
    });
}
