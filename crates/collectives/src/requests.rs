//! Requests completed by this library: generalized requests for which the MPI calls back whenever
//! the program tests them or waits for them, in any language and by any function.

use crate::mpi::{self, Handle, Mpi, SUCCESS};
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

type QueryFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type PollFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type WaitFn = unsafe extern "C" fn(c_int, *mut *mut c_void, f64, *mut c_void) -> c_int;
type StartFn = unsafe extern "C" fn(QueryFn, FreeFn, CancelFn, *mut c_void, *mut Handle) -> c_int;
type StartPolledFn = unsafe extern "C" fn(
    QueryFn,
    FreeFn,
    CancelFn,
    PollFn,
    WaitFn,
    *mut c_void,
    *mut Handle,
) -> c_int;
pub type HookFn = unsafe extern "C" fn() -> c_int;
type RegisterFn = unsafe extern "C" fn(HookFn) -> c_int;
type CompleteFn = unsafe extern "C" fn(Handle) -> c_int;
type ElementsFn = unsafe extern "C" fn(*mut c_void, Handle, c_int) -> c_int;
type CancelledFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type OfHandleFn = unsafe extern "C" fn(*mut Handle) -> c_int;
type DupFn = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type TestFn = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int;
type IsendFn =
    unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
pub type IbcastFn =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle, *mut Handle) -> c_int;
pub type IbcastLongFn =
    unsafe extern "C" fn(*mut c_void, isize, Handle, c_int, Handle, *mut Handle) -> c_int;

/// Words that hold an `MPI_Status` of any MPI.
const STATUS_WORDS: usize = 32;

/// The way in which the MPI calls back for a request.
#[derive(Clone, Copy)]
enum Start {
    /// MPICH and Intel MPI call functions given with each request.
    Polled(StartPolledFn),
    /// Open MPI calls one function whenever it makes progress.
    Hooked(StartFn, RegisterFn),
}

/// The functions that the MPI calls for a request; see [`Requests::start`].
pub struct Calls {
    pub query: QueryFn,
    pub free: FreeFn,
    pub poll: PollFn,
    pub wait: WaitFn,
    /// The function for all requests, for MPIs without functions per request.
    pub hook: HookFn,
}

/// The functions of the MPI.
pub struct Requests {
    start: Start,
    complete: CompleteFn,
    elements: ElementsFn,
    cancelled: CancelledFn,
    dup_type: DupFn,
    free_type: OfHandleFn,
    test: TestFn,
    ibcast: IbcastFn,
    isend: IsendFn,
    free: OfHandleFn,
}

/// The MPI's functions; `None` if the MPI does not call back for requests.
pub fn find() -> Option<&'static Requests> {
    static FOUND: OnceLock<Option<Requests>> = OnceLock::new();
    FOUND.get_or_init(look).as_ref()
}

fn look() -> Option<Requests> {
    let function = mpi::function;
    // SAFETY: functions of these names have these types in every MPI that has them.
    unsafe {
        let start = match (
            function(c"PMPIX_Grequest_start"),
            function(c"opal_progress_register"),
        ) {
            (Some(start), _) => Start::Polled(transmute::<*mut c_void, StartPolledFn>(start)),
            (None, Some(register)) => Start::Hooked(
                transmute::<*mut c_void, StartFn>(function(c"PMPI_Grequest_start")?),
                transmute::<*mut c_void, RegisterFn>(register),
            ),
            (None, None) => return None,
        };
        Some(Requests {
            start,
            complete: transmute::<*mut c_void, CompleteFn>(function(c"PMPI_Grequest_complete")?),
            elements: transmute::<*mut c_void, ElementsFn>(function(c"PMPI_Status_set_elements")?),
            cancelled: transmute::<*mut c_void, CancelledFn>(function(
                c"PMPI_Status_set_cancelled",
            )?),
            dup_type: transmute::<*mut c_void, DupFn>(function(c"PMPI_Type_dup")?),
            free_type: transmute::<*mut c_void, OfHandleFn>(function(c"PMPI_Type_free")?),
            test: transmute::<*mut c_void, TestFn>(function(c"PMPI_Test")?),
            ibcast: transmute::<*mut c_void, IbcastFn>(function(c"PMPI_Ibcast")?),
            isend: transmute::<*mut c_void, IsendFn>(function(c"PMPI_Isend")?),
            free: transmute::<*mut c_void, OfHandleFn>(function(c"PMPI_Request_free")?),
        })
    }
}

/// Ignores the cancelling of a request: a broadcast cannot be cancelled.
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

impl Requests {
    /// Makes a request with the callbacks `calls` and their argument `state`, and writes it to
    /// `request`.
    ///
    /// # Safety
    /// There is room for a handle at `request`; `calls` may be called with `state` from any thread
    /// until `free` was called.
    pub unsafe fn start(&self, calls: &Calls, state: *mut c_void, request: *mut Handle) -> bool {
        // SAFETY: the caller's promise.
        let result = unsafe {
            match self.start {
                Start::Polled(start) => {
                    let Calls { query, free, .. } = *calls;
                    start(query, free, cancel, calls.poll, calls.wait, state, request)
                }
                Start::Hooked(start, _) => {
                    self.hook(calls.hook);
                    start(calls.query, calls.free, cancel, state, request)
                }
            }
        };
        result == SUCCESS
    }

    /// Returns whether the MPI calls one function whenever it makes progress.
    pub fn is_hooked(&self) -> bool {
        matches!(self.start, Start::Hooked(..))
    }

    /// Registers the function that the MPI calls whenever it makes progress; every call must pass
    /// the same one. Returns false if the MPI has no such hook.
    pub fn hook(&self, hook: HookFn) -> bool {
        static HOOKED: AtomicBool = AtomicBool::new(false);
        let Start::Hooked(_, register) = self.start else {
            return false;
        };
        if !HOOKED.swap(true, Ordering::Relaxed) {
            // SAFETY: the MPI's function of this type, and one with static lifetime.
            unsafe { register(hook) };
        }
        true
    }

    /// Completes a request.
    pub fn complete(&self, request: Handle) {
        // SAFETY: a request of `start`, completed once.
        let _ = unsafe { (self.complete)(request) };
    }

    /// Ends a zero-byte receive from this rank on this communicator: sends zero bytes, or, for an
    /// error `code`, one byte, which the receive reports as truncated.
    pub fn end(&self, mpi: &Mpi, (comm, me): (Handle, c_int), code: c_int) {
        static BYTE: u8 = 0;
        let mut request: Handle = 0;
        let (base, count) = ((&raw const BYTE).cast(), (code != SUCCESS) as c_int);
        // SAFETY: a static byte, and room for a handle, which is freed once.
        unsafe {
            if (self.isend)(base, count, mpi.byte(), me, 0, comm, &mut request) == SUCCESS {
                let _ = (self.free)(&mut request);
            }
        }
    }

    /// Fills the status of a request with zero received bytes.
    ///
    /// # Safety
    ///
    /// The MPI passed `status` to a `query`.
    pub unsafe fn fill(&self, mpi: &Mpi, status: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe {
            let _ = (self.elements)(status, mpi.byte(), 0);
            let _ = (self.cancelled)(status, 0);
        }
    }

    /// A datatype that stays valid when the program frees the given one.
    pub fn keep_type(&self, mpi: &Mpi, datatype: Handle) -> Option<Handle> {
        let mut kept: Handle = 0;
        // SAFETY: the caller's datatype, and room for a handle.
        let result = unsafe { (self.dup_type)(datatype, &mut kept) };
        (result == SUCCESS).then(|| mpi.handle(kept))
    }

    /// Frees a datatype of `keep_type`.
    pub fn free_type(&self, mut datatype: Handle) {
        // SAFETY: from `keep_type`, freed once.
        let _ = unsafe { (self.free_type)(&mut datatype) };
    }

    /// Begins the MPI's own nonblocking broadcast and returns its request.
    ///
    /// # Safety
    /// As for `MPI_Ibcast`.
    pub unsafe fn ibcast(
        &self,
        (buffer, count, datatype): (*mut c_void, c_int, Handle),
        root: c_int,
        comm: Handle,
    ) -> Result<Handle, c_int> {
        let mut request: Handle = 0;
        // SAFETY: the caller's promise, and room for a handle.
        match unsafe { (self.ibcast)(buffer, count, datatype, root, comm, &mut request) } {
            SUCCESS => Ok(request),
            code => Err(code),
        }
    }

    /// Tests a request of the MPI. Returns its result code if it has ended.
    pub fn test(&self, request: &mut Handle) -> Option<c_int> {
        let (mut over, mut status) = (0, [0u64; STATUS_WORDS]);
        // SAFETY: a request from `ibcast`; there is room for the status.
        let code = unsafe { (self.test)(request, &mut over, status.as_mut_ptr().cast()) };
        (code != SUCCESS || over != 0).then_some(code)
    }
}
