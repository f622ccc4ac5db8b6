//! The Fortran functions. Those of MPICH and Intel MPI call the C functions, where this library
//! stands already. Those of Open MPI call the profiling interface, past it; so they are taken over
//! here, by each name that a compiler may give them (`mpif.h` and the module `mpi`), and by that
//! which the module `mpi_f08` calls.

use crate::guard::with;
use crate::mpi::{self, Handle, Mpi};
use crate::{allreduce, bcast, group, ibcast, persistent};
use std::ffi::{c_int, c_void, CStr};
use std::mem::transmute;

/// A Fortran integer, of which handles are made, too.
type Fint = c_int;

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
type StartAllFn = unsafe extern "C" fn(*const Fint, *mut Fint, *mut Fint);
type C2fFn = unsafe extern "C" fn(Handle) -> Fint;
type OfCommFn = unsafe extern "C" fn(*mut Fint, *mut Fint);
type FinalizeFn = unsafe extern "C" fn(*mut Fint);

/// The C handle of a Fortran handle, where the Fortran functions are to be taken over.
fn handle(mpi: &Mpi, name: &CStr, of: Fint) -> Option<Handle> {
    mpi.is_open_mpi().then_some(())?;
    // SAFETY: Open MPI's function of this name.
    unsafe {
        let of_fortran: F2cFn = transmute(mpi::function(name)?);
        Some(of_fortran(of))
    }
}

/// The C value of a buffer: `MPI_BOTTOM` and `MPI_IN_PLACE` are variables of Open MPI's there.
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

/// The arguments in C.
///
/// # Safety
/// As of `MPI_BCAST`.
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
/// As of `MPI_BCAST`; `name` is that of the called function.
unsafe fn broadcast(
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
            (done, _) => tell(error, done),
        }
    }
}

/// # Safety
/// As of `MPI_IBCAST`; `name` is that of the called function.
unsafe fn begin(
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
            (done, _) => tell(error, done),
        }
    }
}

/// # Safety
/// As of `MPI_BCAST_INIT`; `name` is that of the called function.
unsafe fn init(
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
            (done, _) => tell(error, done),
        }
    }
}

/// # Safety
/// As of `MPI_ALLREDUCE`; `name` is that of the called function.
unsafe fn reduce(
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
            (done, _) => tell(error, done),
        }
    }
}

/// Starts a request of this library's.
///
/// # Safety
/// As of `MPI_START`.
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
/// As of `MPI_START`; `name` is that of the called function.
unsafe fn start(name: &CStr, request: *mut Fint, error: *mut Fint) {
    // SAFETY: the caller's promise.
    let done = with(|mpi| unsafe { start_own(mpi, request) });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match (done, mpi::next(name)) {
            (None, Some(next)) => transmute::<*mut c_void, OfCommFn>(next)(request, error),
            (done, _) => tell(error, done),
        }
    }
}

/// # Safety
/// As of `MPI_STARTALL`; `name` is that of the called function.
unsafe fn start_all(name: &CStr, count: *const Fint, requests: *mut Fint, error: *mut Fint) {
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
            (done, _) => tell(error, done),
        }
    }
}

/// # Safety
/// As of `MPI_REQUEST_FREE`; `name` is that of the called function.
unsafe fn free(name: &CStr, request: *mut Fint, error: *mut Fint) {
    with(|mpi| {
        // SAFETY: the caller's promise.
        persistent::before_free(handle(mpi, c"PMPI_Request_f2c", unsafe { *request })?);
        None
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match mpi::next(name) {
            Some(next) => transmute::<*mut c_void, OfCommFn>(next)(request, error),
            None => tell(error, None),
        }
    }
}

/// # Safety
/// As of `MPI_COMM_FREE`; `name` is that of the called function.
unsafe fn before_end(name: &CStr, comm: *mut Fint, error: *mut Fint) {
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
            None => tell(error, None),
        }
    }
}

/// # Safety
/// As of `MPI_FINALIZE`; `name` is that of the called function.
unsafe fn finalize(name: &CStr, error: *mut Fint) {
    with(|mpi| {
        mpi.is_open_mpi().then(|| group::end_all(mpi));
        None
    });
    // SAFETY: the caller's promise, and the function of this name.
    unsafe {
        match mpi::next(name) {
            Some(next) => transmute::<*mut c_void, FinalizeFn>(next)(error),
            None => tell(error, None),
        }
    }
}

/// # Safety
/// `error` is null or an integer.
unsafe fn tell(error: *mut Fint, code: Option<c_int>) {
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = code.unwrap_or(mpi::ABSENT);
    }
}

/// A C string.
macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

/// The functions by all their names.
macro_rules! exports {
    (broadcast: $($name:ident),*) => { $(
        /// `MPI_BCAST`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            data: *mut c_void,
            count: *const Fint,
            datatype: *const Fint,
            root: *const Fint,
            comm: *const Fint,
            error: *mut Fint,
        ) {
            // SAFETY: the caller's promise.
            unsafe { broadcast(name!($name), data, [count, datatype, root, comm], error) }
        }
    )* };
    (reduce: $($name:ident),*) => { $(
        /// `MPI_ALLREDUCE`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            from: *mut c_void,
            to: *mut c_void,
            count: *const Fint,
            datatype: *const Fint,
            op: *const Fint,
            comm: *const Fint,
            error: *mut Fint,
        ) {
            let values = [count, datatype, op, comm];
            // SAFETY: the caller's promise.
            unsafe { reduce(name!($name), [from, to], values, error) }
        }
    )* };
    (begin: $($name:ident),*) => { $(
        /// `MPI_IBCAST`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            data: *mut c_void,
            count: *const Fint,
            datatype: *const Fint,
            root: *const Fint,
            comm: *const Fint,
            request: *mut Fint,
            error: *mut Fint,
        ) {
            let values = [count, datatype, root, comm];
            // SAFETY: the caller's promise.
            unsafe { begin(name!($name), data, values, request, error) }
        }
    )* };
    (init: $($name:ident),*) => { $(
        /// `MPI_BCAST_INIT`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            data: *mut c_void,
            count: *const Fint,
            datatype: *const Fint,
            root: *const Fint,
            comm: *const Fint,
            info: *const Fint,
            request: *mut Fint,
            error: *mut Fint,
        ) {
            let values = [count, datatype, root, comm, info];
            // SAFETY: the caller's promise.
            unsafe { init(name!($name), data, values, request, error) }
        }
    )* };
    (start_all: $($name:ident),*) => { $(
        /// `MPI_STARTALL`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            count: *const Fint,
            requests: *mut Fint,
            error: *mut Fint,
        ) {
            // SAFETY: the caller's promise.
            unsafe { start_all(name!($name), count, requests, error) }
        }
    )* };
    (of_request $call:ident: $($name:ident),*) => { $(
        /// `MPI_START` or `MPI_REQUEST_FREE`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(request: *mut Fint, error: *mut Fint) {
            // SAFETY: the caller's promise.
            unsafe { $call(name!($name), request, error) }
        }
    )* };
    (before_end: $($name:ident),*) => { $(
        /// `MPI_COMM_FREE` or `MPI_COMM_DISCONNECT`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(comm: *mut Fint, error: *mut Fint) {
            // SAFETY: the caller's promise.
            unsafe { before_end(name!($name), comm, error) }
        }
    )* };
    (finalize: $($name:ident),*) => { $(
        /// `MPI_FINALIZE`.
        ///
        /// # Safety
        /// As the MPI says.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(error: *mut Fint) {
            // SAFETY: the caller's promise.
            unsafe { finalize(name!($name), error) }
        }
    )* };
}

exports!(broadcast: mpi_bcast, mpi_bcast_, mpi_bcast__, MPI_BCAST, ompi_bcast_f);
exports!(reduce: mpi_allreduce, mpi_allreduce_, mpi_allreduce__, MPI_ALLREDUCE,
    ompi_allreduce_f);
exports!(begin: mpi_ibcast, mpi_ibcast_, mpi_ibcast__, MPI_IBCAST, ompi_ibcast_f);
exports!(before_end: mpi_comm_free, mpi_comm_free_, mpi_comm_free__);
exports!(before_end: MPI_COMM_FREE, ompi_comm_free_f);
exports!(before_end: mpi_comm_disconnect, mpi_comm_disconnect_, mpi_comm_disconnect__,
    MPI_COMM_DISCONNECT, ompi_comm_disconnect_f);
exports!(finalize: mpi_finalize, mpi_finalize_, mpi_finalize__, MPI_FINALIZE, ompi_finalize_f);
exports!(init: mpi_bcast_init, mpi_bcast_init_, mpi_bcast_init__, MPI_BCAST_INIT,
    ompi_bcast_init_f);
exports!(of_request start: mpi_start, mpi_start_, mpi_start__, MPI_START, ompi_start_f);
exports!(start_all: mpi_startall, mpi_startall_, mpi_startall__, MPI_STARTALL, ompi_startall_f);
exports!(of_request free: mpi_request_free, mpi_request_free_, mpi_request_free__);
exports!(of_request free: MPI_REQUEST_FREE, ompi_request_free_f);
