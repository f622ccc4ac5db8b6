//! The Fortran functions under the names that compilers give them (`mpif.h` and the module `mpi`),
//! and under the name that the module `mpi_f08` calls.
//!
//! Lower-case names without an underscore are left to the MPI: compilers for Linux use them only
//! with special options, and other software has C functions of these names (Rmpi: `mpi_allreduce`),
//! which exported functions of ours would replace.

use crate::fortran::{
    before_end, begin, broadcast, finalize, free, gather, init, reduce, start, start_all, wait,
    Fint,
};
use std::ffi::{c_void, CStr};

/// A C string.
macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

/// Defines a function under all its names.
macro_rules! exports {
    (broadcast: $($name:ident),*) => { $(
        /// `MPI_BCAST`.
        ///
        /// # Safety
        /// As for the MPI's function.
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
        /// As for the MPI's function.
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
    (gather: $($name:ident),*) => { $(
        /// `MPI_ALLGATHER`.
        ///
        /// # Safety
        /// As for the MPI's function.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            from: *mut c_void,
            count: *const Fint,
            datatype: *const Fint,
            to: *mut c_void,
            to_count: *const Fint,
            to_type: *const Fint,
            comm: *const Fint,
            error: *mut Fint,
        ) {
            let (from, to) = ((from, count, datatype), (to, to_count, to_type));
            // SAFETY: the caller's promise.
            unsafe { gather(name!($name), from, to, comm, error) }
        }
    )* };
    (begin: $($name:ident),*) => { $(
        /// `MPI_IBCAST`.
        ///
        /// # Safety
        /// As for the MPI's function.
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
        /// As for the MPI's function.
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
        /// As for the MPI's function.
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
    (of_one $call:ident: $($name:ident),*) => { $(
        /// `MPI_START`, `MPI_REQUEST_FREE` or `MPI_BARRIER`.
        ///
        /// # Safety
        /// As for the MPI's function.
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
        /// As for the MPI's function.
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
        /// As for the MPI's function.
        #[allow(non_snake_case)]
        #[no_mangle]
        pub unsafe extern "C" fn $name(error: *mut Fint) {
            // SAFETY: the caller's promise.
            unsafe { finalize(name!($name), error) }
        }
    )* };
}

exports!(broadcast: mpi_bcast_, mpi_bcast__, MPI_BCAST, ompi_bcast_f);
exports!(reduce: mpi_allreduce_, mpi_allreduce__, MPI_ALLREDUCE,
    ompi_allreduce_f);
exports!(gather: mpi_allgather_, mpi_allgather__, MPI_ALLGATHER,
    ompi_allgather_f);
exports!(of_one wait: mpi_barrier_, mpi_barrier__, MPI_BARRIER, ompi_barrier_f);
exports!(begin: mpi_ibcast_, mpi_ibcast__, MPI_IBCAST, ompi_ibcast_f);
exports!(before_end: mpi_comm_free_, mpi_comm_free__);
exports!(before_end: MPI_COMM_FREE, ompi_comm_free_f);
exports!(before_end: mpi_comm_disconnect_, mpi_comm_disconnect__,
    MPI_COMM_DISCONNECT, ompi_comm_disconnect_f);
exports!(finalize: mpi_finalize_, mpi_finalize__, MPI_FINALIZE, ompi_finalize_f);
exports!(init: mpi_bcast_init_, mpi_bcast_init__, MPI_BCAST_INIT,
    ompi_bcast_init_f);
exports!(of_one start: mpi_start_, mpi_start__, MPI_START, ompi_start_f);
exports!(start_all: mpi_startall_, mpi_startall__, MPI_STARTALL, ompi_startall_f);
exports!(of_one free: mpi_request_free_, mpi_request_free__);
exports!(of_one free: MPI_REQUEST_FREE, ompi_request_free_f);
