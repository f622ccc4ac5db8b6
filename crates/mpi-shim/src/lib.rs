//! Fixes for MPIs: `libmarline-mpi.so`, which `marline run` preloads into the ranks of MPICH and
//! Open MPI. It suppresses useless yields in processes in which one thread calls MPI, receives Open
//! MPI's matched-probe messages (`matched`), and corrects Open MPI 4.1's persistent sends
//! (`persistent`).
//!
//! MPICH yields the processor after every poll for messages (`MPID_Progress_wait` of its
//! `ch4_progress.h`), even after a successful one, and no setting prevents it. A waiting program
//! should yield; one that has work should not. So the provider tells this library when a poll found
//! something, and the thread's next yield before another poll is suppressed.
//! `docs/design/progress.md` has the measured gain.
//!
//! Open MPI yields only if configured (`mpi_yield_when_idle`). Without it, threads of one process
//! busy-wait for each other until the end of their time slices. With it, a single-threaded program
//! yields after each empty poll, although the engine yields when necessary. So `marline run` sets
//! it, and this library suppresses the yields after polls if one thread calls MPI
//! (`docs/design/progress.md`).
//!
//! All other yields take place: the engine's own, those of other threads, and those of programs
//! without Marline.

mod buffered;
mod matched;
mod persistent;

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// A poll of the provider is running, or there has been none.
const NO_POLL: u8 = 0;
/// The last poll found nothing.
const EMPTY: u8 = 1;
/// The last poll found something, so a yield would only delay it.
const FOUND: u8 = 2;

thread_local! {
    /// The result of the thread's last poll, until its next yield.
    static POLL: Cell<u8> = const { Cell::new(NO_POLL) };
}

/// Called by the provider at the start of a poll of the calling thread (0), and at its end, if the
/// poll found nothing (1) or something (2).
#[no_mangle]
pub extern "C" fn marline_poll(state: u8) {
    POLL.set(state);
}

/// Calls the real `sched_yield(2)`, unless the yield is known to be useless.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if is_left_out() {
        return 0;
    }
    really_yield()
}

/// Returns whether to suppress the calling thread's yield, at most once per poll.
fn is_left_out() -> bool {
    match POLL.replace(NO_POLL) {
        FOUND => matches!(callers_of_mpi(), ONE | ONE_OF_OPEN_MPI),
        EMPTY => callers_of_mpi() == ONE_OF_OPEN_MPI,
        _ => false,
    }
}

type YieldFn = unsafe extern "C" fn() -> c_int;

/// Calls `sched_yield` of the next library, which may be another preloaded one.
fn really_yield() -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        next = find(libc::RTLD_NEXT, c"sched_yield");
        NEXT.store(next, Ordering::Relaxed);
    }
    // SAFETY: a pointer to a function of this type, or null.
    match unsafe { std::mem::transmute::<*mut c_void, Option<YieldFn>>(next) } {
        // SAFETY: sched_yield has no arguments.
        Some(next) => unsafe { next() },
        // SAFETY: the system call has none either.
        None => unsafe { libc::syscall(libc::SYS_sched_yield) as c_int },
    }
}

const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
const SEVERAL: u8 = 2;
const ONE_OF_OPEN_MPI: u8 = 3;
/// Result of `callers`: one or several threads call MPI; `UNKNOWN` until MPI can be queried.
static CALLERS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns whether one or several threads call MPI. If several do, the thread waiting inside MPI
/// must yield so that another one gets MPI's lock.
fn callers_of_mpi() -> u8 {
    match CALLERS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let callers = callers();
            CALLERS.store(callers, Ordering::Relaxed);
            callers
        }
        known => known,
    }
}

type QueryFn = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Derives it from `MPI_Query_thread`, called as PMPI so that profiling tools do not see the call.
/// `UNKNOWN` before MPI is initialised (with MPI sessions alone: always). `SEVERAL` if MPI cannot
/// be queried because it is finalised, or was loaded privately, as by Python (whose mpi4py requests
/// multiple threads).
fn callers() -> u8 {
    let query = |name: &CStr| {
        let function = find(libc::RTLD_DEFAULT, name);
        // SAFETY: a pointer to a function of this type, or null.
        let function = unsafe { std::mem::transmute::<*mut c_void, Option<QueryFn>>(function) }?;
        let mut answer = 0;
        // SAFETY: all queried functions write one int.
        (unsafe { function(&mut answer) } == 0).then_some(answer)
    };
    match (query(c"PMPI_Initialized"), query(c"PMPI_Finalized")) {
        (Some(0), Some(0)) => UNKNOWN,
        (Some(_), Some(0)) => match query(c"PMPI_Query_thread") {
            Some(level) if below_multiple(level) && is_open_mpi() => ONE_OF_OPEN_MPI,
            Some(level) if below_multiple(level) => ONE,
            _ => SEVERAL,
        },
        _ => SEVERAL,
    }
}

/// Returns whether this is Open MPI: no other MPI has this function.
fn is_open_mpi() -> bool {
    !find(libc::RTLD_DEFAULT, c"ompi_mpi_init").is_null()
}

/// Returns whether the level is `MPI_THREAD_SINGLE`, `_FUNNELED` or `_SERIALIZED`, in MPICH's ABI
/// (0, 1, 2) or in that of MPI 5.0 (chapter 20: 0, 1024, 2048).
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

    /// A single test, because the number of threads that call MPI is a property of the process.
    #[test]
    fn one_yield_per_poll_is_suppressed_if_one_thread_calls_mpi() {
        let left_out_after = |state| {
            marline_poll(state);
            is_left_out()
        };
        assert_eq!(callers(), SEVERAL, "there is no MPI in this process");
        assert!(!left_out_after(FOUND), "several threads may call MPI");
        assert_eq!(CALLERS.load(Ordering::Relaxed), SEVERAL);
        CALLERS.store(ONE, Ordering::Relaxed);
        assert!(!is_left_out(), "the poll before was for one yield only");
        assert!(left_out_after(FOUND));
        assert!(!is_left_out(), "it was for one yield");
        assert!(!left_out_after(EMPTY), "the poll found nothing");
        assert!(!left_out_after(NO_POLL), "the engine's own");
        CALLERS.store(ONE_OF_OPEN_MPI, Ordering::Relaxed);
        assert!(!is_left_out(), "no poll before it");
        assert!(left_out_after(FOUND));
        assert!(left_out_after(EMPTY));
        assert!(!is_left_out(), "it was for one yield");
        assert!(!left_out_after(NO_POLL), "the engine's own");
        assert_eq!(sched_yield(), 0);
    }
}
