//! Spares MPICH the yield between a message's arrival and the program, if Marline's library for
//! that (`crates/mpi-shim`) is preloaded.

use std::ffi::c_void;
use std::sync::OnceLock;

type NeedlessFn = unsafe extern "C" fn(bool);

/// Says whether the calling thread's next `sched_yield` may be left out: its poll found something.
pub(crate) fn needless(found_something: bool) {
    static FOUND: OnceLock<Option<NeedlessFn>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: a C string, looked up in the global scope, where preloaded libraries are; ours
        // defines it as a function of this type, and is never unmapped.
        unsafe {
            let name = c"marline_yield_needless";
            let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            std::mem::transmute::<*mut c_void, Option<NeedlessFn>>(function)
        }
    });
    if let Some(tell) = found {
        // SAFETY: it may be called at any time.
        unsafe { tell(found_something) };
    }
}
