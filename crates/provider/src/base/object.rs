//! The common part of all objects behind libfabric's handles: creation, lookup by handle, closing.

use crate::abi::*;
use crate::base::boundary::{guard_free, Errno};
use crate::base::log::trace;
use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;

/// An object with a libfabric handle. Dropping the object closes it.
///
/// # Safety
/// It is `#[repr(C)]` and begins with its `Fid`, which begins with a [`fid`].
pub(crate) unsafe trait Object: Sized {
    /// libfabric's struct for the object.
    type Fid;
    /// The class in the handle that identifies the kind of object.
    const CLASS: usize;
    /// The operations common to all kinds of objects.
    const FID_OPS: &'static fi_ops = &only_close::<Self>();

    /// True if other objects use this one; closing is then refused.
    fn in_use(&self) -> bool {
        false
    }
}

/// Operations of an object that can only be closed.
pub(crate) const fn only_close<T: Object>() -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: close::<T>,
        bind: no_bind,
        control: no_control,
        ops_open: absent,
        tostr: no_text,
        ops_set: absent,
    }
}

/// See [`Absent`].
pub(crate) unsafe extern "C" fn absent() -> isize {
    -(libc::ENOSYS as isize)
}

unsafe extern "C" fn no_text(_: *const fid, _: *mut c_char, _: usize) -> c_int {
    -libc::ENOSYS
}

/// `bind` of an object without bindings.
pub(crate) unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -libc::ENOSYS
}

unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}

/// The first field of a new object's `Fid`; `context` is the application's.
pub(crate) fn header<T: Object>(context: *mut c_void) -> fid {
    fid {
        fclass: T::CLASS,
        context,
        ops: T::FID_OPS,
    }
}

/// Passes ownership of an object to the application, until its close.
///
/// # Safety
/// `out` may be written to.
pub(crate) unsafe fn give<T: Object>(object: T, out: *mut *mut T::Fid) {
    // SAFETY: the caller's promise.
    unsafe { *out = Box::into_raw(Box::new(object)).cast() };
}

/// The object behind its handle.
///
/// # Safety
/// The handle came from [`give`] for this type, and is open.
#[inline]
pub(crate) unsafe fn of<'a, T: Object>(handle: *mut T::Fid) -> &'a T {
    // SAFETY: the caller's promise, and the trait's.
    unsafe { &*handle.cast::<T>() }
}

/// `fi_close`.
unsafe extern "C" fn close<T: Object>(fid: *mut fid) -> c_int {
    guard_free(|| {
        let object = fid.cast::<T>();
        // SAFETY: made by `give`; the caller gives it up unless we answer busy.
        unsafe {
            let busy = (*object).in_use();
            trace!("close {object:p} of class {}, busy {busy}", T::CLASS);
            if busy {
                return Err(Errno::BUSY);
            }
            drop(Box::from_raw(object));
        }
        Ok(0)
    })
}
