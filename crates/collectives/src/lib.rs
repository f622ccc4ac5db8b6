//! Multicast collectives: `libmarline-collectives.so`, which `marline run` preloads into the ranks
//! of an MPI job. It carries `MPI_Bcast` and some other calls by the multicast groups of the engine
//! that the MPI's libfabric has opened in the process. docs/multicast.md describes it.
//!
//! It interposes the MPI's functions and passes calls that it does not handle to the next library
//! that defines the function: a profiling tool or the MPI.
//!
//! All ranks of a communicator decide alike, because the decision uses only what all ranks know:
//! the number of bytes, and the agreement made at the communicator's first use.
//!
//! `mpi` has the functions of the MPI, which `marline_symbols` finds, `abi` its constants,
//! `provider` the functions of Marline's provider, `calls` the selected calls. `group` stores the
//! agreement of a communicator, `agreement` reaches it, `offer` is each rank's part of it, `quiet`
//! replaces the program's error handler meanwhile, `survival` knows dead ranks. `bcast`, `ibcast`,
//! `persistent`, `allreduce`, `allgather` and `barrier` are the calls, `exchange` the broadcasts by
//! all ranks that the last three consist of, `requests` the MPI's requests, `wait` the waiting
//! loop, `fortran` the Fortran functions, `fortran_names` their names, `guard` the handling of
//! panics.

mod abi;
mod agreement;
mod allgather;
mod allreduce;
mod barrier;
mod bcast;
mod calls;
mod exchange;
mod fortran;
mod fortran_names;
mod group;
mod guard;
mod ibcast;
mod mpi;
mod offer;
mod persistent;
mod provider;
mod quiet;
mod requests;
mod survival;
mod wait;

use allgather::Side;
use guard::with;
use mpi::{Handle, SUCCESS};
use std::ffi::{c_int, c_void};

type StartAllFn = unsafe extern "C" fn(c_int, *mut Handle) -> c_int;
type EndFn = unsafe extern "C" fn(*mut Handle) -> c_int;

/// Returns the result in `$done`, or else that of the first listed function that exists in the next
/// library (a tool or the MPI) and accepts the arguments.
macro_rules! or_next {
    ($done:expr, $($name:tt as $of:ty => ($($arg:expr),*)),+) => {
        $done$(.or_else(|| {
            let next = mpi::next($name)?;
            // SAFETY: the function of this name has this type, and the arguments are the caller's.
            Some(unsafe { std::mem::transmute::<*mut c_void, $of>(next)($($arg),*) })
        }))+.unwrap_or(mpi::ABSENT)
    };
}

/// A count for an MPI before 4.0, which has no large-count functions although the program finds
/// this library's.
fn short(count: isize) -> Option<c_int> {
    c_int::try_from(count).ok()
}

/// `MPI_Bcast`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Bcast(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count: count as isize,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { bcast::broadcast(mpi, &asked) });
    or_next!(done, c"MPI_Bcast" as mpi::BcastFn => (buffer, count, datatype, root, comm))
}

/// `MPI_Bcast_c`, which may match `MPI_Bcast` on other ranks.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Bcast_c(
    buffer: *mut c_void,
    count: isize,
    datatype: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { bcast::broadcast(mpi, &asked) });
    or_next!(done,
        c"MPI_Bcast_c" as mpi::BcastLongFn => (buffer, count, datatype, root, comm),
        c"MPI_Bcast" as mpi::BcastFn => (buffer, short(count)?, datatype, root, comm))
}

/// `MPI_Allreduce`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Allreduce(
    from: *const c_void,
    to: *mut c_void,
    count: c_int,
    datatype: Handle,
    op: Handle,
    comm: Handle,
) -> c_int {
    let asked = allreduce::Allreduce {
        from,
        to,
        count: count as isize,
        datatype,
        op,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { allreduce::reduce(mpi, &asked) });
    or_next!(done, c"MPI_Allreduce" as mpi::AllreduceFn => (from, to, count, datatype, op, comm))
}

/// `MPI_Allreduce_c`, which may match `MPI_Allreduce` on other ranks.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Allreduce_c(
    from: *const c_void,
    to: *mut c_void,
    count: isize,
    datatype: Handle,
    op: Handle,
    comm: Handle,
) -> c_int {
    let asked = allreduce::Allreduce {
        from,
        to,
        count,
        datatype,
        op,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { allreduce::reduce(mpi, &asked) });
    or_next!(done,
        c"MPI_Allreduce_c" as mpi::AllreduceLongFn => (from, to, count, datatype, op, comm),
        c"MPI_Allreduce" as mpi::AllreduceFn => (from, to, short(count)?, datatype, op, comm))
}

/// `MPI_Barrier`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Barrier(comm: Handle) -> c_int {
    let done = with(|mpi| barrier::wait(mpi, comm));
    or_next!(done, c"MPI_Barrier" as mpi::BarrierFn => (comm))
}

/// `MPI_Allgather`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Allgather(
    from: *const c_void,
    count: c_int,
    datatype: Handle,
    to: *mut c_void,
    to_count: c_int,
    to_type: Handle,
    comm: Handle,
) -> c_int {
    let from = Side {
        buffer: from,
        count: count as isize,
        datatype,
    };
    let to = Side {
        buffer: to,
        count: to_count as isize,
        datatype: to_type,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { allgather::gather(mpi, from, to, comm) });
    let (from, to) = (from.buffer, to.buffer);
    or_next!(done,
        c"MPI_Allgather" as mpi::AllgatherFn =>
            (from, count, datatype, to, to_count, to_type, comm))
}

/// `MPI_Allgather_c`, which may match `MPI_Allgather` on other ranks.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Allgather_c(
    from: *const c_void,
    count: isize,
    datatype: Handle,
    to: *mut c_void,
    to_count: isize,
    to_type: Handle,
    comm: Handle,
) -> c_int {
    let from = Side {
        buffer: from,
        count,
        datatype,
    };
    let to = Side {
        buffer: to,
        count: to_count,
        datatype: to_type,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { allgather::gather(mpi, from, to, comm) });
    let (from, to) = (from.buffer, to.buffer);
    or_next!(done,
        c"MPI_Allgather_c" as mpi::AllgatherLongFn =>
            (from, count, datatype, to, to_count, to_type, comm),
        c"MPI_Allgather" as mpi::AllgatherFn =>
            (from, short(count)?, datatype, to, short(to_count)?, to_type, comm))
}

/// `MPI_Ibcast`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Ibcast(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    root: c_int,
    comm: Handle,
    request: *mut Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count: count as isize,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { ibcast::begin(mpi, &asked, request) });
    or_next!(done,
        c"MPI_Ibcast" as requests::IbcastFn => (buffer, count, datatype, root, comm, request))
}

/// `MPI_Ibcast_c`, which may match `MPI_Ibcast` on other ranks.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Ibcast_c(
    buffer: *mut c_void,
    count: isize,
    datatype: Handle,
    root: c_int,
    comm: Handle,
    request: *mut Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { ibcast::begin(mpi, &asked, request) });
    or_next!(done,
        c"MPI_Ibcast_c" as requests::IbcastLongFn => (buffer, count, datatype, root, comm, request),
        c"MPI_Ibcast" as requests::IbcastFn =>
            (buffer, short(count)?, datatype, root, comm, request))
}

/// `MPI_Bcast_init`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Bcast_init(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    root: c_int,
    comm: Handle,
    info: Handle,
    request: *mut Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count: count as isize,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { persistent::init(mpi, &asked, request) });
    or_next!(done,
        c"MPI_Bcast_init" as persistent::InitFn =>
            (buffer, count, datatype, root, comm, info, request))
}

/// `MPI_Bcast_init_c`, which may match `MPI_Bcast_init` on other ranks.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Bcast_init_c(
    buffer: *mut c_void,
    count: isize,
    datatype: Handle,
    root: c_int,
    comm: Handle,
    info: Handle,
    request: *mut Handle,
) -> c_int {
    let asked = bcast::Bcast {
        buffer,
        count,
        datatype,
        root,
        comm,
    };
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { persistent::init(mpi, &asked, request) });
    or_next!(done,
        c"MPI_Bcast_init_c" as persistent::InitLongFn =>
            (buffer, count, datatype, root, comm, info, request),
        c"MPI_Bcast_init" as persistent::InitFn =>
            (buffer, short(count)?, datatype, root, comm, info, request))
}

/// `MPI_Start`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Start(request: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { persistent::start(mpi, request) });
    // SAFETY: the caller's promise.
    done.unwrap_or_else(|| unsafe { of_request(c"MPI_Start", request) })
}

/// `MPI_Startall`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Startall(count: c_int, requests: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe {
        let next = |request| of_request(c"MPI_Start", request);
        persistent::start_all(mpi, count, requests, next)
    });
    or_next!(done, c"MPI_Startall" as StartAllFn => (count, requests))
}

/// `MPI_Request_free`.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Request_free(request: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    with(|mpi| unsafe {
        persistent::before_free(mpi.read(request)?);
        None
    });
    // SAFETY: the caller's promise.
    unsafe { of_request(c"MPI_Request_free", request) }
}

/// # Safety
/// As for the function of this name, which has one argument.
unsafe fn of_request(name: &std::ffi::CStr, request: *mut Handle) -> c_int {
    or_next!(None, name as persistent::OfRequestFn => (request))
}

/// `MPI_Comm_free`: closes the communicator's group first.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Comm_free(comm: *mut Handle) -> c_int {
    // SAFETY: the caller's promise; handles of a smaller type are read as such.
    unsafe { before_end(comm, c"MPI_Comm_free") }
}

/// `MPI_Comm_disconnect`: closes the communicator's group first.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Comm_disconnect(comm: *mut Handle) -> c_int {
    // SAFETY: as above.
    unsafe { before_end(comm, c"MPI_Comm_disconnect") }
}

unsafe fn before_end(comm: *mut Handle, name: &std::ffi::CStr) -> c_int {
    // SAFETY: the caller's promise.
    with(|mpi| unsafe {
        let comm = mpi.read(comm)?;
        persistent::end(mpi, comm);
        group::end(mpi, comm, ibcast::settle);
        None
    });
    or_next!(None, name as EndFn => (comm))
}

/// `MPI_Finalize`: waits first until this rank's broadcasts have arrived.
///
/// # Safety
/// As for the MPI's function.
#[no_mangle]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    with(|mpi| {
        group::end_all(mpi);
        None
    });
    match mpi::next(c"MPI_Finalize") {
        // SAFETY: the function of this name.
        Some(next) => unsafe {
            let next: unsafe extern "C" fn() -> c_int = std::mem::transmute(next);
            next()
        },
        None => SUCCESS,
    }
}
