//! Wait objects: the descriptors of FI_WAIT_FD. Each is an eventfd, raised by the first event after
//! an `fi_trywait` without news.

use crate::abi::*;
use crate::base::boundary::Errno;
use crate::objects::domain::DomainShared;
use marline_codes::Code;
use marline_engine::Bell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The bell of a wait object; `None` for kinds without a descriptor.
pub(crate) fn bell(wait_obj: c_int) -> Result<Option<Arc<Bell>>, Errno> {
    match wait_obj {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => Ok(None),
        FI_WAIT_FD => Bell::new().map(|bell| Some(Arc::new(bell))).map_err(|why| {
            crate::base::log::warn(Code::CannotStart, &why);
            Errno::NOMEM
        }),
        _ => Err(Errno::NOSYS),
    }
}

/// Like [`bell`], for an object that relies on the progress thread for news.
pub(crate) fn bell_in(shared: &DomainShared, wait_obj: c_int) -> Result<Option<Arc<Bell>>, Errno> {
    if wait_obj == FI_WAIT_FD && !shared.engine.is_threaded() {
        return Err(Errno::NOSYS);
    }
    bell(wait_obj)
}

/// `fi_control` for an object with an optional descriptor.
///
/// # Safety
/// `arg` has the type that libfabric documents for `command`.
pub(crate) unsafe fn control(bell: Option<&Bell>, command: c_int, arg: *mut c_void) -> c_int {
    let answer = match (command, bell) {
        _ if arg.is_null() => return -libc::EINVAL,
        (FI_GETWAIT, Some(bell)) => bell.fd(),
        (FI_GETWAIT, None) => return -libc::ENODATA,
        (FI_GETWAITOBJ, Some(_)) => FI_WAIT_FD,
        (FI_GETWAITOBJ, None) => FI_WAIT_UNSPEC,
        _ => return -libc::ENOSYS,
    };
    // SAFETY: both are ints, and it is not null.
    unsafe { *arg.cast::<c_int>() = answer };
    0
}
