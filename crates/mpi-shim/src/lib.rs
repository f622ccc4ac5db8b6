//! `libmarline-mpi.so`, which `marline run` preloads into the ranks of MPICH: it spares them the
//! yield between a message's arrival and the program.
//!
//! MPICH offers the processor after every single look for messages (`MPID_Progress_wait` of its
//! `ch4_progress.h`), also after the look that found the one waited for, and no setting stops it.
//! 8 B half round trips took 9.1 us so, and 7.3 us without those yields of 0.8 us (EPYC of family
//! 25, medians of 15; Intel MPI 7.0 us). A program that waits is right to offer the processor; one
//! that has something to do is not to. So the provider tells this library when a poll found
//! something, and the thread's next yield is left out, until it polls again. All others happen:
//! the engine's own, those after looks that found nothing, of other threads, and of programs
//! without Marline.

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

thread_local! {
    /// The thread's next yield may be left out.
    static NEEDLESS: Cell<bool> = const { Cell::new(false) };
}

/// For the provider: whether the calling thread's poll found something, so that its next
/// `sched_yield` only keeps it from that.
#[no_mangle]
pub extern "C" fn marline_yield_needless(needless: bool) {
    NEEDLESS.set(needless);
}

/// `sched_yield(2)`, or nothing where that is known to be needless.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if NEEDLESS.replace(false) && one_thread_calls_mpi() {
        return 0;
    }
    really_yield()
}

type YieldFn = unsafe extern "C" fn() -> c_int;

/// The next library's, which may be another one that was preloaded.
fn really_yield() -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        next = find(libc::RTLD_NEXT, c"sched_yield");
        NEXT.store(next, Ordering::Relaxed);
    }
    // SAFETY: a pointer to a function of this type, or null.
    match unsafe { std::mem::transmute::<*mut c_void, Option<YieldFn>>(next) } {
        // SAFETY: sched_yield takes nothing.
        Some(next) => unsafe { next() },
        // SAFETY: so does the system call.
        None => unsafe { libc::syscall(libc::SYS_sched_yield) as c_int },
    }
}

const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
const SEVERAL: u8 = 2;
/// How many threads call MPI, once MPI knows.
static CALLERS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether at most one thread calls MPI at a time. Where several do, a yield is how the one that
/// waits inside MPI lets go of MPI's lock for long enough that another one gets it.
fn one_thread_calls_mpi() -> bool {
    match CALLERS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let callers = callers();
            CALLERS.store(callers, Ordering::Relaxed);
            callers == ONE
        }
        known => known == ONE,
    }
}

type QueryFn = unsafe extern "C" fn(*mut c_int) -> c_int;

/// What `MPI_Query_thread` says; by its other name, past tools that wrap it. Unknown until MPI is
/// initialised, which it never is where only sessions are used; several where MPI cannot be asked
/// because it is over, or was loaded privately, as by Python (whose mpi4py wants several).
fn callers() -> u8 {
    let query = |name: &CStr| {
        let function = find(libc::RTLD_DEFAULT, name);
        // SAFETY: a pointer to a function of this type, or null.
        let function = unsafe { std::mem::transmute::<*mut c_void, Option<QueryFn>>(function) }?;
        let mut answer = 0;
        // SAFETY: all functions that are asked for write one int.
        (unsafe { function(&mut answer) } == 0).then_some(answer)
    };
    match (query(c"PMPI_Initialized"), query(c"PMPI_Finalized")) {
        (Some(0), Some(0)) => UNKNOWN,
        (Some(_), Some(0)) => match query(c"PMPI_Query_thread") {
            Some(level) if below_multiple(level) => ONE,
            _ => SEVERAL,
        },
        _ => SEVERAL,
    }
}

/// `MPI_THREAD_SINGLE`, `_FUNNELED` or `_SERIALIZED` in MPICH's ABI (0, 1, 2) or in that of MPI 5.0
/// (chapter 20: 0, 1024, 2048).
fn below_multiple(level: c_int) -> bool {
    matches!(level, 0..=2 | 1024 | 2048)
}

fn find(from: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle that dlsym defines, and a C string.
    unsafe { libc::dlsym(from, name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_both_abis() {
        assert!([0, 1, 2, 1024, 2048].into_iter().all(below_multiple));
        assert!(![-1, 3, 4096].into_iter().any(below_multiple));
    }

    #[test]
    fn without_mpi_every_yield_happens() {
        assert_eq!(callers(), SEVERAL);
        marline_yield_needless(true);
        assert_eq!(sched_yield(), 0);
        assert!(!NEEDLESS.get(), "it was for one yield");
        assert_eq!(CALLERS.load(Ordering::Relaxed), SEVERAL);
    }
}
