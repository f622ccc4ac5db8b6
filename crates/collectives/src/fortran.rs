//! The Fortran functions. Those of MPICH and Intel MPI call the C functions, which this library
//! interposes. Those of Open MPI bypass these by calling the profiling interface (PMPI), so they
//! are interposed by the names in `fortran_names`, which call this file.

use crate::guard::with;
use crate::mpi::{self, Handle, Mpi};
use crate::{allgather, allreduce, barrier, bcast, group, ibcast, persistent};
use std::ffi::{c_int, c_void, CStr};
use std::mem::transmute;

/// A Fortran integer; handles are Fortran integers, too.
pub type Fint = c_int;

type F2cFn = unsafe extern "C" fn(Fint) -> Handle;
type BcastFn = unsafe extern "C" fn(
    *mut c_void,
    *const Fint,
    *const Fint,
    *const Fint,
    *const Fint,
    *mut Fint,
);
type IbcastFn = unsafe extern "C" fn(
    *mut c_void,
    *const Fint,
    *const Fint,
    *const Fint,
    *const Fint,
    *mut Fint,
    *mut Fint,
);
type InitFn = unsafe extern "C" fn(
    *mut c_void,
    *const Fint,
    *const Fint,
    *const Fint,
    *const Fint,
    *const Fint,
    *mut Fint,
    *mut Fint,
);
type AllreduceFn = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *const Fint,
    *const Fint,
    *const Fint,
    *const Fint,
    *mut Fint,
);
type AllgatherFn = unsafe extern "C" fn(
    *mut c_void,
    *const Fint,
    *const Fint,
    *mut c_void,
    *const Fint,
    *const Fint,
    *const Fint,
    *mut Fint,
);
type StartAllFn = unsafe extern "C" fn(*const Fint, *mut Fint, *mut Fint);
type C2fFn = unsafe extern "C" fn(Handle) -> Fint;
type OfCommFn = unsafe extern "C" fn(*mut Fint, *mut Fint);
type FinalizeFn = unsafe extern "C" fn(*mut Fint);

/// The C handle of a Fortran handle, if the Fortran functions are interposed (Open MPI).
fn handle(mpi: &Mpi, name: &CStr, of: Fint) -> Option<Handle> {
    mpi.is_open_mpi().then_some(())?;
    // SAFETY: Open MPI's function of this name.
    unsafe {
        let of_fortran: F2cFn = transmute(mpi::function(name)?);
        Some(of_fortran(of))
    }
}

/// The C value of a buffer: `MPI_BOTTOM` and `MPI_IN_PLACE` are variables in Open MPI's Fortran.
fn buffer(mpi: &Mpi, given: *mut c_void) -> *mut c_void {
    let bottom = [
        c"mpi_fortran_bottom_",
        c"mpi_fortran_bottom",
        c"mpi_fortran_bottom__",
        c"MPI_FORTRAN_BOTTOM",
    ];
    let in_place = [
        c"mpi_fortran_in_place_",
        c"mpi_fortran_in_place",
        c"mpi_fortran_in_place__",
        c"MPI_FORTRAN_IN_PLACE",
    ];
    let is = |names: [&CStr; 4]| names.iter().any(|name| mpi::function(name) == Some(given));
    match (is(bottom), is(in_place)) {
        (true, _) => std::ptr::null_mut(),
        (_, true) => mpi.in_place(),
        _ => given,
    }
}

/// Converts the arguments to C.
///
/// # Safety
/// As for `MPI_BCAST`.
unsafe fn asked(
    mpi: &Mpi,
    data: *mut c_void,
    [count, datatype, root, comm]: [*const Fint; 4],
) -> Option<bcast::Bcast> {
    // SAFETY: the caller's promise: these are integers.
    let (count, datatype, root, comm) = unsafe { (*count, *datatype, *root, *comm) };
    Some(bcast::Bcast {
        comm: handle(mpi, c"PMPI_Comm_f2c", comm)?,
        datatype: handle(mpi, c"PMPI_Type_f2c", datatype)?,
        buffer: buffer(mpi, data),
        count: count as isize,
        root,
    })
}

/// # Safety
/// As for `MPI_BCAST`; `name` is that of the called function.
pub unsafe fn broadcast(
    name: &CStr,
    data: *mut c_void,
    [count, datatype, root, comm]: [*const Fint; 4],
    error: *mut Fint,
) {
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe {
        let asked = asked(mpi, data, [count, datatype, root, comm])?;
        bcast::broadcast(mpi, &asked)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                transmute::<*mut c_void, BcastFn>(next)(data, count, datatype, root, comm, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_IBCAST`; `name` is that of the called function.
pub unsafe fn begin(
    name: &CStr,
    data: *mut c_void,
    [count, datatype, root, comm]: [*const Fint; 4],
    request: *mut Fint,
    error: *mut Fint,
) {
    // SAFETY: the caller's promise, and the MPI's function of this name.
    let done = with(|mpi| unsafe {
        let asked = asked(mpi, data, [count, datatype, root, comm])?;
        let to_fortran: C2fFn = transmute(mpi::function(c"PMPI_Request_c2f")?);
        let mut made: Handle = 0;
        let done = ibcast::begin(mpi, &asked, &mut made)?;
        if done == mpi::SUCCESS {
            *request = to_fortran(made);
        }
        Some(done)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                let next: IbcastFn = transmute(next);
                next(data, count, datatype, root, comm, request, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_BCAST_INIT`; `name` is that of the called function.
pub unsafe fn init(
    name: &CStr,
    data: *mut c_void,
    [count, datatype, root, comm, info]: [*const Fint; 5],
    request: *mut Fint,
    error: *mut Fint,
) {
    // SAFETY: the caller's promise, and the MPI's function of this name.
    let done = with(|mpi| unsafe {
        let asked = asked(mpi, data, [count, datatype, root, comm])?;
        let to_fortran: C2fFn = transmute(mpi::function(c"PMPI_Request_c2f")?);
        let mut made: Handle = 0;
        let done = persistent::init(mpi, &asked, &mut made)?;
        if done == mpi::SUCCESS {
            *request = to_fortran(made);
        }
        Some(done)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                let next: InitFn = transmute(next);
                next(data, count, datatype, root, comm, info, request, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_ALLREDUCE`; `name` is that of the called function.
pub unsafe fn reduce(
    name: &CStr,
    [from, to]: [*mut c_void; 2],
    [count, datatype, op, comm]: [*const Fint; 4],
    error: *mut Fint,
) {
    // SAFETY: the caller's promise: these are integers.
    let done = with(|mpi| unsafe {
        let asked = allreduce::Allreduce {
            comm: handle(mpi, c"PMPI_Comm_f2c", *comm)?,
            op: handle(mpi, c"PMPI_Op_f2c", *op)?,
            datatype: handle(mpi, c"PMPI_Type_f2c", *datatype)?,
            from: buffer(mpi, from),
            to: buffer(mpi, to),
            count: *count as isize,
        };
        allreduce::reduce(mpi, &asked)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                let next: AllreduceFn = transmute(next);
                next(from, to, count, datatype, op, comm, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_ALLGATHER`; `name` is that of the called function.
pub unsafe fn gather(
    name: &CStr,
    (from, count, datatype): (*mut c_void, *const Fint, *const Fint),
    (to, to_count, to_type): (*mut c_void, *const Fint, *const Fint),
    comm: *const Fint,
    error: *mut Fint,
) {
    // SAFETY: the caller's promise: these are integers.
    let done = with(|mpi| unsafe {
        let to = allgather::Side {
            buffer: buffer(mpi, to),
            count: *to_count as isize,
            datatype: handle(mpi, c"PMPI_Type_f2c", *to_type)?,
        };
        let from = allgather::Side {
            buffer: buffer(mpi, from).cast_const(),
            count: *count as isize,
            datatype: handle(mpi, c"PMPI_Type_f2c", *datatype)?,
        };
        allgather::gather(mpi, from, to, handle(mpi, c"PMPI_Comm_f2c", *comm)?)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                let next: AllgatherFn = transmute(next);
                next(from, count, datatype, to, to_count, to_type, comm, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_BARRIER`; `name` is that of the called function.
pub unsafe fn wait(name: &CStr, comm: *mut Fint, error: *mut Fint) {
    // SAFETY: the caller's promise.
    let done = with(|mpi| barrier::wait(mpi, handle(mpi, c"PMPI_Comm_f2c", unsafe { *comm })?));
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => transmute::<*mut c_void, OfCommFn>(next)(comm, error),
            (done, _) => set_error(error, done),
        }
    }
}

/// Starts a request of this library.
///
/// # Safety
/// As for `MPI_START`.
unsafe fn start_own(mpi: &Mpi, request: *mut Fint) -> Option<c_int> {
    // SAFETY: the caller's promise, and the MPI's function of this name.
    unsafe {
        let mut own = handle(mpi, c"PMPI_Request_f2c", *request)?;
        let to_fortran: C2fFn = transmute(mpi::function(c"PMPI_Request_c2f")?);
        let before = own;
        let done = persistent::start(mpi, &mut own)?;
        if own != before {
            *request = to_fortran(own);
        }
        Some(done)
    }
}

/// # Safety
/// As for `MPI_START`; `name` is that of the called function.
pub unsafe fn start(name: &CStr, request: *mut Fint, error: *mut Fint) {
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { start_own(mpi, request) });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => transmute::<*mut c_void, OfCommFn>(next)(request, error),
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_STARTALL`; `name` is that of the called function.
pub unsafe fn start_all(name: &CStr, count: *const Fint, requests: *mut Fint, error: *mut Fint) {
    // SAFETY: the caller's promise, and the MPI's functions of these names.
    let done = with(|mpi| unsafe {
        let next: persistent::OfRequestFn = transmute(mpi::function(c"PMPI_Start")?);
        let to_fortran: C2fFn = transmute(mpi::function(c"PMPI_Request_c2f")?);
        let count = usize::try_from(*count).ok()?;
        persistent::are_some().then_some(())?;
        let handles = (0..count).map(|at| handle(mpi, c"PMPI_Request_f2c", *requests.add(at)));
        let before: Vec<Handle> = handles.collect::<Option<_>>()?;
        let mut now = before.clone();
        let start = |request| next(request);
        let done = persistent::start_all(mpi, count as c_int, now.as_mut_ptr(), start)?;
        for (at, (now, before)) in now.into_iter().zip(before).enumerate() {
            if now != before {
                *requests.add(at) = to_fortran(now);
            }
        }
        Some(done)
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => {
                transmute::<*mut c_void, StartAllFn>(next)(count, requests, error)
            }
            (done, _) => set_error(error, done),
        }
    }
}

/// # Safety
/// As for `MPI_REQUEST_FREE`; `name` is that of the called function.
pub unsafe fn free(name: &CStr, request: *mut Fint, error: *mut Fint) {
    with(|mpi| {
        // SAFETY: the caller's promise.
        persistent::before_free(handle(mpi, c"PMPI_Request_f2c", unsafe { *request })?);
        None
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match mpi::next(name) {
            Some(next) => transmute::<*mut c_void, OfCommFn>(next)(request, error),
            None => set_error(error, None),
        }
    }
}

/// # Safety
/// As for `MPI_COMM_FREE`; `name` is that of the called function.
pub unsafe fn before_end(name: &CStr, comm: *mut Fint, error: *mut Fint) {
    with(|mpi| {
        // SAFETY: the caller's promise.
        let comm = handle(mpi, c"PMPI_Comm_f2c", unsafe { *comm })?;
        persistent::end(mpi, comm);
        group::end(mpi, comm, ibcast::settle);
        None
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match mpi::next(name) {
            Some(next) => transmute::<*mut c_void, OfCommFn>(next)(comm, error),
            None => set_error(error, None),
        }
    }
}

/// # Safety
/// As for `MPI_FINALIZE`; `name` is that of the called function.
pub unsafe fn finalize(name: &CStr, error: *mut Fint) {
    with(|mpi| {
        mpi.is_open_mpi().then(|| group::end_all(mpi));
        None
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match mpi::next(name) {
            Some(next) => transmute::<*mut c_void, FinalizeFn>(next)(error),
            None => set_error(error, None),
        }
    }
}

/// # Safety
/// `error` is null or an integer.
unsafe fn set_error(error: *mut Fint, code: Option<c_int>) {
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = code.unwrap_or(mpi::ABSENT);
    }
}
