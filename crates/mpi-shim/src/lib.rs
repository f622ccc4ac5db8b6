//! `libmarline-mpi.so`, which `marline run` preloads into the ranks of MPICH and Open MPI. It
//! leaves out yields that are of no use where one thread of the process calls MPI.
//!
//! MPICH offers the processor after every look for messages (`MPID_Progress_wait` of its
//! `ch4_progress.h`), also after the look that found the one waited for, and no setting stops it.
//! A program that waits is right to offer the processor; one that has something to do is not. So
//! the provider tells this library when a poll found something, and the thread's next yield is left
//! out, until it polls again. The gain is measured in
//! `docs/design/progress.md`.
//!
//! Open MPI offers the processor only if it is told to (`mpi_yield_when_idle`). Without that
//! threads of one process wait for each other in loops, each until the end of its time slice, and
//! with it a program of one thread yields after each empty poll, as if the engine did not do so
//! when it is due. So `marline run` tells it to, and here the yields after polls are left out of
//! programs in which one thread calls MPI (`docs/design/progress.md`).
//!
//! All other yields happen: the engine's own, those of other threads, and of programs without
//! Marline.
//!
//! It also receives messages of Open MPI's that a probe matched (`matched`), and makes right what
//! Open MPI 4.1 sends by persistent requests (`persistent`).

mod buffered;
mod matched;
mod persistent;

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// A poll of the provider's is under way, or none ever was.
const NO_POLL: u8 = 0;
/// The last poll found nothing.
const EMPTY: u8 = 1;
/// The last poll found something, so that a yield would only delay it.
const FOUND: u8 = 2;

thread_local! {
    /// The outcome of the thread's last poll, until its next yield.
    static POLL: Cell<u8> = const { Cell::new(NO_POLL) };
}

/// Called by the provider as a poll of the calling thread begins (0), and as it ends: it found
/// nothing (1) or something (2).
#[no_mangle]
pub extern "C" fn marline_poll(state: u8) {
    POLL.set(state);
}

/// `sched_yield(2)`, or nothing where that is known to be needless.
#[no_mangle]
pub extern "C" fn sched_yield() -> c_int {
    if is_left_out() {
        return 0;
    }
    really_yield()
}

/// True if the calling thread's yield is to be left out, at most once for each poll.
fn is_left_out() -> bool {
    match POLL.replace(NO_POLL) {
        FOUND => matches!(callers_of_mpi(), ONE | ONE_OF_OPEN_MPI),
        EMPTY => callers_of_mpi() == ONE_OF_OPEN_MPI,
        _ => false,
    }
}

type YieldFn = unsafe extern "C" fn() -> c_int;

/// Calls `sched_yield` of the next library, which may be another one that was preloaded.
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
const ONE_OF_OPEN_MPI: u8 = 3;
/// The number of threads that call MPI, once MPI knows it.
static CALLERS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// How many threads call MPI at a time. Where several do, a yield is how the one that waits inside
/// MPI lets go of MPI's lock for long enough that another one gets it.
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

/// The answer of `MPI_Query_thread`, called by its other name so that tools that wrap it do not see
/// the call. It is unknown until MPI is initialised, which it never is where only sessions are
/// used. It is "several" where MPI cannot be asked because it is over, or was loaded privately, as
/// by Python (whose mpi4py wants several).
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
            Some(level) if below_multiple(level) && is_open_mpi() => ONE_OF_OPEN_MPI,
            Some(level) if below_multiple(level) => ONE,
            _ => SEVERAL,
        },
        _ => SEVERAL,
    }
}

/// Open MPI alone has such a function.
fn is_open_mpi() -> bool {
    !find(libc::RTLD_DEFAULT, c"ompi_mpi_init").is_null()
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

    /// One test, since the number of threads that call MPI is the process's.
    #[test]
    fn one_yield_is_left_out_for_a_poll_where_one_thread_calls_mpi() {
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
