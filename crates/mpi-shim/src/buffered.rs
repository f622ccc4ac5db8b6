//! Persistent buffered sends (`MPI_Bsend_init`) of Open MPI 4.1's pml/cm, which at a restart sends
//! the leftover state of the first message. Here each start except the first replaces the request
//! by a new one (docs/design/mpi.md).

use marline_symbols::{function, next, ErrorFn};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

type Handle = *mut c_void;
type DupFn = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type FreeFn = unsafe extern "C" fn(*mut Handle) -> c_int;
type StartFn = unsafe extern "C" fn(*mut Handle) -> c_int;
type StartAllFn = unsafe extern "C" fn(c_int, *mut Handle) -> c_int;

const SUCCESS: c_int = 0;
/// `MPI_ERR_INTERN` of Open MPI.
const ERR_INTERN: c_int = 17;
/// `MPI_ERR_NO_MEM` of Open MPI.
const ERR_NO_MEM: c_int = 39;
/// `OMPI_ERR_OUT_OF_RESOURCE`.
const OUT_OF_RESOURCE: c_int = -2;
/// Error code returned if there is no MPI behind this library; an error in any MPI.
const ABSENT: c_int = 1;

/// The arguments of `pml_isend_init` for a buffered send, without the mode.
pub struct Send {
    pub buffer: *const c_void,
    pub count: usize,
    pub datatype: Handle,
    pub to: c_int,
    pub tag: c_int,
    pub communicator: Handle,
}

/// Makes another request of the same send.
///
/// # Safety
/// As for Open MPI's `pml_isend_init`.
pub type MakeFn = unsafe fn(&Send, *mut Handle) -> c_int;

/// A request that may be restarted.
struct Again {
    send: Send,
    make: MakeFn,
    started: bool,
}

// SAFETY: addresses that Open MPI accepts from any thread. This library owns the datatype, and the
// request retains the communicator.
unsafe impl std::marker::Send for Again {}

struct OpenMpi {
    dup: DupFn,
    free_type: FreeFn,
    free_request: FreeFn,
    error: ErrorFn<Handle>,
}

fn open_mpi() -> Option<&'static OpenMpi> {
    static FOUND: OnceLock<Option<OpenMpi>> = OnceLock::new();
    let look = || {
        // SAFETY: functions of these names have these types in Open MPI.
        unsafe {
            Some(OpenMpi {
                dup: transmute::<*mut c_void, DupFn>(function(c"PMPI_Type_dup")?),
                free_type: transmute::<*mut c_void, FreeFn>(function(c"PMPI_Type_free")?),
                free_request: transmute::<*mut c_void, FreeFn>(function(c"PMPI_Request_free")?),
                error: transmute::<*mut c_void, ErrorFn<Handle>>(function(
                    c"PMPI_Comm_call_errhandler",
                )?),
            })
        }
    };
    FOUND.get_or_init(look).as_ref()
}

/// Set once a buffered request was made.
static SOME: AtomicBool = AtomicBool::new(false);

/// Entries by request address. The entry of a freed request stays until its memory is reused for
/// another persistent send: Open MPI reuses the memory of requests only for requests of the same
/// kind.
fn requests() -> MutexGuard<'static, Option<HashMap<usize, Again>>> {
    static REQUESTS: Mutex<Option<HashMap<usize, Again>>> = Mutex::new(None);
    REQUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a new persistent send; `send` is given if it is a buffered send.
///
/// # Safety
///
/// The request is one of Open MPI 4, and the datatype of `send` is valid.
pub unsafe fn made(request: Handle, send: Option<(Send, MakeFn)>) {
    let Some(mpi) = open_mpi() else {
        return;
    };
    if send.is_some() || are_some() {
        // SAFETY: the caller's promise.
        unsafe { keep(mpi, request, send) };
    }
}

/// # Safety
/// The conditions of [`made`] hold.
unsafe fn keep(mpi: &OpenMpi, request: Handle, send: Option<(Send, MakeFn)>) {
    SOME.store(true, Ordering::Relaxed);
    let mut requests = requests();
    let known = requests.get_or_insert_default();
    if let Some(mut old) = known.remove(&request.addr()) {
        // SAFETY: a type that was duplicated below and is used nowhere else.
        unsafe { (mpi.free_type)(&mut old.send.datatype) };
    }
    if let Some((mut send, make)) = send {
        // The program may free its own datatype.
        let mut own = send.datatype;
        // SAFETY: the caller's promise.
        if unsafe { (mpi.dup)(send.datatype, &mut own) } == SUCCESS {
            send.datatype = own;
            let again = Again {
                send,
                make,
                started: false,
            };
            known.insert(request.addr(), again);
        }
    }
}

/// Converts an error of the pml, which is negative, to an MPI error code.
fn in_words_of_mpi(code: c_int) -> c_int {
    match code {
        OUT_OF_RESOURCE => ERR_NO_MEM,
        ..SUCCESS => ERR_INTERN,
        _ => code,
    }
}

/// Renews requests that are about to be started.
///
/// # Safety
/// As for `MPI_Startall`.
unsafe fn renew_all(count: usize, requests: *mut Handle) -> c_int {
    let Some(mpi) = open_mpi().filter(|_| are_some() && !requests.is_null()) else {
        return SUCCESS;
    };
    for at in 0..count {
        // SAFETY: the caller's promise.
        let code = unsafe { renew(mpi, requests.add(at)) };
        if code != SUCCESS {
            return code;
        }
    }
    SUCCESS
}

/// Replaces a request that is about to be restarted. If that fails, calls the error handler of its
/// communicator, as Open MPI does for a failed start.
///
/// # Safety
/// As for `MPI_Start`.
unsafe fn renew(mpi: &OpenMpi, request: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    let old = unsafe { *request };
    let (send, make) = {
        let mut requests = requests();
        let known = requests.as_mut().and_then(|all| all.get_mut(&old.addr()));
        let Some(again) = known else { return SUCCESS };
        if !std::mem::replace(&mut again.started, true) {
            return SUCCESS;
        }
        (Send { ..again.send }, again.make)
    };
    let mut new = old;
    // SAFETY: the program's arguments are valid as long as its request. The old request is freed
    // last because it retains the communicator.
    unsafe {
        let code = in_words_of_mpi(make(&send, &mut new));
        if code != SUCCESS {
            (mpi.error)(send.communicator, code);
            return code;
        }
        let mut old = old;
        (mpi.free_request)(&mut old);
        *request = new;
    }
    let mut requests = requests();
    if let Some(again) = requests.as_mut().and_then(|all| all.get_mut(&new.addr())) {
        again.started = true;
    }
    SUCCESS
}

/// Returns whether any request may have to be renewed; always `false` with another MPI.
fn are_some() -> bool {
    SOME.load(Ordering::Relaxed)
}

/// Defines `MPI_Start` and `MPI_Startall` under their MPI or PMPI names.
macro_rules! starts {
    ($one:ident = $one_text:literal, $all:ident = $all_text:literal) => {
        /// The MPI's function, after renewing the request.
        ///
        /// # Safety
        /// As for the MPI's function.
        #[no_mangle]
        pub unsafe extern "C" fn $one(request: *mut Handle) -> c_int {
            let Some(next) = next($one_text) else {
                return ABSENT;
            };
            // SAFETY: the MPI's function of this name, and the caller's promise.
            unsafe {
                match renew_all(1, request) {
                    SUCCESS => transmute::<*mut c_void, StartFn>(next)(request),
                    code => code,
                }
            }
        }

        /// The MPI's function, after renewing the requests.
        ///
        /// # Safety
        /// As for the MPI's function.
        #[no_mangle]
        pub unsafe extern "C" fn $all(count: c_int, requests: *mut Handle) -> c_int {
            let Some(next) = next($all_text) else {
                return ABSENT;
            };
            // SAFETY: the MPI's function of this name, and the caller's promise.
            unsafe {
                match renew_all(count.max(0) as usize, requests) {
                    SUCCESS => transmute::<*mut c_void, StartAllFn>(next)(count, requests),
                    code => code,
                }
            }
        }
    };
}

starts!(MPI_Start = c"MPI_Start", MPI_Startall = c"MPI_Startall");
starts!(PMPI_Start = c"PMPI_Start", PMPI_Startall = c"PMPI_Startall");

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;
    use std::sync::atomic::{AtomicI32, AtomicUsize};

    const COMMUNICATOR: usize = 0xc0;
    /// Addresses of the first request and of its replacement.
    const OLD: usize = 0x10;
    const NEW: usize = 0x20;

    static FREED: AtomicUsize = AtomicUsize::new(0);
    /// Result code of making a request.
    static MADE: AtomicI32 = AtomicI32::new(SUCCESS);
    /// Communicator and error code of each call of the error handler.
    static RAISED: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn dup(datatype: Handle, own: *mut Handle) -> c_int {
        // SAFETY: the address of a variable.
        unsafe { *own = datatype };
        SUCCESS
    }

    unsafe extern "C" fn free_type(_: *mut Handle) -> c_int {
        SUCCESS
    }

    unsafe extern "C" fn free_request(request: *mut Handle) -> c_int {
        // SAFETY: the address of a variable.
        FREED.store(unsafe { *request }.addr(), Ordering::Relaxed);
        SUCCESS
    }

    unsafe extern "C" fn error(communicator: Handle, code: c_int) -> c_int {
        RAISED.lock().unwrap().push((communicator.addr(), code));
        SUCCESS
    }

    const MPI: OpenMpi = OpenMpi {
        dup,
        free_type,
        free_request,
        error,
    };

    fn send() -> Send {
        Send {
            buffer: std::ptr::null(),
            count: 1,
            datatype: without_provenance_mut(0xd0),
            to: 1,
            tag: 2,
            communicator: without_provenance_mut(COMMUNICATOR),
        }
    }

    unsafe fn make(_: &Send, request: *mut Handle) -> c_int {
        let code = MADE.load(Ordering::Relaxed);
        if code == SUCCESS {
            // SAFETY: the address of a variable, and a request made by this module.
            unsafe {
                *request = without_provenance_mut(NEW);
                keep(&MPI, *request, Some((send(), make)));
            }
        }
        code
    }

    #[test]
    fn a_start_that_fails_calls_the_error_handler_of_its_communicator() {
        let mut request: Handle = without_provenance_mut(OLD);
        // SAFETY: a mock of Open MPI, which dereferences nothing.
        let mut start = || unsafe {
            let code = renew(&MPI, &mut request);
            (code, request.addr(), FREED.load(Ordering::Relaxed))
        };
        // SAFETY: as above.
        unsafe { keep(&MPI, without_provenance_mut(OLD), Some((send(), make))) };
        assert_eq!(start(), (SUCCESS, OLD, 0), "the first start needs no other");
        for (theirs, code) in [(OUT_OF_RESOURCE, ERR_NO_MEM), (-1, ERR_INTERN), (5, 5)] {
            MADE.store(theirs, Ordering::Relaxed);
            assert_eq!(start(), (code, OLD, 0), "the program keeps its request");
            assert_eq!(RAISED.lock().unwrap().pop(), Some((COMMUNICATOR, code)));
        }
        MADE.store(SUCCESS, Ordering::Relaxed);
        assert_eq!(start(), (SUCCESS, NEW, OLD), "it may be started again");
        assert!(RAISED.lock().unwrap().is_empty(), "each was told once");
    }
}
