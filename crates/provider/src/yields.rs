//! Tells Marline's preloaded library (`crates/mpi-shim`), if it is there, of each poll: it leaves
//! out yields of MPI's that are of no use after one.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type PollFn = extern "C" fn(u8);

/// Stands for a library that is not there.
extern "C" fn nobody(_: u8) {}

/// A poll of the calling thread begins: yields until it ends are the engine's own, and happen.
#[inline]
pub(crate) fn poll_begins() {
    tell(0);
}

/// The poll has ended.
#[inline]
pub(crate) fn poll_ends(found_something: bool) {
    tell(1 + u8::from(found_something));
}

#[inline]
fn tell(state: u8) {
    /// Whom to tell; null before anyone has looked. (Nothing that waits: a fork may come.)
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = look();
        FOUND.store(found, Relaxed);
    }
    // SAFETY: of `look`.
    let tell = unsafe { std::mem::transmute::<*mut c_void, PollFn>(found) };
    tell(state);
}

#[cold]
fn look() -> *mut c_void {
    let name = c"marline_poll";
    // SAFETY: a C string, looked up in the global scope, where preloaded libraries are; ours
    // defines it as such a function, which may be called at any time, and is never unmapped.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return nobody as *mut c_void;
    }
    found
}
