//! Reports the begin and end of each poll to Marline's preloaded library (`crates/mpi-shim`), if
//! present, which suppresses the MPI's useless yields after a poll.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type PollFn = extern "C" fn(u8);

/// The callback in a process without the preloaded library.
extern "C" fn nobody(_: u8) {}

/// Reports that a poll of the calling thread begins. Yields during a poll are the engine's and are
/// not suppressed.
#[inline]
pub(crate) fn poll_begins() {
    report(0);
}

/// The poll has ended.
#[inline]
pub(crate) fn poll_ends(found_something: bool) {
    report(1 + u8::from(found_something));
}

#[inline]
fn report(state: u8) {
    /// The callback; null before the first look-up. (No lock or `Once`, since a fork may happen
    /// during the look-up.)
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = look();
        FOUND.store(found, Relaxed);
    }
    // SAFETY: of `look`.
    let report = unsafe { std::mem::transmute::<*mut c_void, PollFn>(found) };
    report(state);
}

#[cold]
fn look() -> *mut c_void {
    let name = c"marline_poll";
    // SAFETY: a C string, looked up in the global scope of preloaded libraries. The library defines
    // the symbol as a function of this type, callable at any time and never unmapped.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return nobody as *mut c_void;
    }
    found
}
