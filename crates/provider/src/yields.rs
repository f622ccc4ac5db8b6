//! Spares MPICH the yield between a message's arrival and the program, if Marline's library for
//! that (`crates/mpi-shim`) is preloaded.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type NeedlessFn = extern "C" fn(bool);

/// Stands for a library that is not there.
extern "C" fn nobody(_: bool) {}

/// Says whether the calling thread's next `sched_yield` may be left out: its poll found something.
#[inline]
pub(crate) fn needless(found_something: bool) {
    /// Whom to tell; null before anyone has looked. (Nothing that waits: a fork may come.)
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = look();
        FOUND.store(found, Relaxed);
    }
    // SAFETY: of `look`.
    let tell = unsafe { std::mem::transmute::<*mut c_void, NeedlessFn>(found) };
    tell(found_something);
}

#[cold]
fn look() -> *mut c_void {
    let name = c"marline_yield_needless";
    // SAFETY: a C string, looked up in the global scope, where preloaded libraries are; ours
    // defines it as such a function, which may be called at any time, and is never unmapped.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return nobody as *mut c_void;
    }
    found
}
