//! Receives of matched probes (`MPI_Mprobe`) into noncontiguous data. Open MPI's pml/cm receives
//! such data into an internal buffer and forgets to unpack it. Here the data goes into a buffer of
//! this library and is unpacked from there (docs/design/mpi.md).
//!
//! Open MPI's Fortran functions call the profiling interface, so that is interposed as well. Calls
//! of all other MPIs, and of Open MPI with another pml, are passed on unchanged.

use marline_codes::Code;
use marline_symbols::{function, next, EnvelopeFn, ErrorFn, ExtentFn, PackFn, UnpackFn};
use std::ffi::{c_int, c_void, CStr};
use std::io::Write;
use std::mem::transmute;
use std::sync::OnceLock;

/// A handle: a pointer in Open MPI.
type Handle = *mut c_void;

type MrecvFn = unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Status) -> c_int;
type ImrecvFn = unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Handle) -> c_int;
type SizeFn = unsafe extern "C" fn(Handle, *mut i64) -> c_int;
type QueryFn = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type StartFn = unsafe extern "C" fn(QueryFn, FreeFn, CancelFn, *mut c_void, *mut Handle) -> c_int;
type CompleteFn = unsafe extern "C" fn(Handle) -> c_int;

const SUCCESS: c_int = 0;
/// `MPI_ERR_COUNT` of Open MPI.
const ERR_COUNT: c_int = 2;
/// `MPI_ERR_NO_MEM` of Open MPI.
const ERR_NO_MEM: c_int = 39;
/// Error code returned if there is no MPI behind this library; an error in any MPI.
const ABSENT: c_int = 1;

/// `MPI_Status` of Open MPI 4 and 5.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

/// Open MPI's functions, and its variables whose addresses are handles.
struct OpenMpi {
    /// The MTL of pml/cm, null with another pml.
    mtl: *const *const c_void,
    packed: Handle,
    own: Handle,
    no_proc: Handle,
    no_request: Handle,
    mrecv: MrecvFn,
    size: SizeFn,
    extent: ExtentFn<Handle>,
    true_extent: ExtentFn<Handle>,
    envelope: EnvelopeFn<Handle>,
    pack: PackFn<Handle>,
    unpack: UnpackFn<Handle>,
    start: StartFn,
    complete: CompleteFn,
    error: ErrorFn<Handle>,
}

// SAFETY: addresses that are valid in all threads for the lifetime of the process.
unsafe impl Send for OpenMpi {}
// SAFETY: as above; only `mtl` is dereferenced, which MPI_Init writes before any receive.
unsafe impl Sync for OpenMpi {}

/// Open MPI, if it is the MPI of this process and uses pml/cm.
fn pml_cm() -> Option<&'static OpenMpi> {
    static FOUND: OnceLock<Option<OpenMpi>> = OnceLock::new();
    let mpi = FOUND.get_or_init(look).as_ref()?;
    // SAFETY: a variable of Open MPI.
    (!unsafe { *mpi.mtl }.is_null()).then_some(mpi)
}

fn look() -> Option<OpenMpi> {
    let mtl = function(c"ompi_mtl")?.cast_const().cast();
    // SAFETY: functions of these names have these types in Open MPI.
    unsafe {
        Some(OpenMpi {
            mtl,
            packed: function(c"ompi_mpi_packed")?,
            own: function(c"ompi_mpi_comm_self")?,
            no_proc: function(c"ompi_message_no_proc")?,
            no_request: function(c"ompi_request_null")?,
            mrecv: transmute::<*mut c_void, MrecvFn>(next(c"PMPI_Mrecv")?),
            size: transmute::<*mut c_void, SizeFn>(function(c"PMPI_Type_size_x")?),
            extent: transmute::<*mut c_void, ExtentFn<Handle>>(function(c"PMPI_Type_get_extent")?),
            true_extent: transmute::<*mut c_void, ExtentFn<Handle>>(function(
                c"PMPI_Type_get_true_extent",
            )?),
            envelope: transmute::<*mut c_void, EnvelopeFn<Handle>>(function(
                c"PMPI_Type_get_envelope",
            )?),
            pack: transmute::<*mut c_void, PackFn<Handle>>(function(c"PMPI_Pack")?),
            unpack: transmute::<*mut c_void, UnpackFn<Handle>>(function(c"PMPI_Unpack")?),
            start: transmute::<*mut c_void, StartFn>(function(c"PMPI_Grequest_start")?),
            complete: transmute::<*mut c_void, CompleteFn>(function(c"PMPI_Grequest_complete")?),
            error: transmute::<*mut c_void, ErrorFn<Handle>>(function(
                c"PMPI_Comm_call_errhandler",
            )?),
        })
    }
}

/// The receive arguments of the program.
#[derive(Clone, Copy)]
pub struct Place {
    pub buffer: *mut c_void,
    pub count: c_int,
    pub datatype: Handle,
}

impl OpenMpi {
    /// Number of bytes of a noncontiguous place, or of a derived datatype, which may be
    /// noncontiguous; `None`: the place is contiguous, or Open MPI will reject the type in the call
    /// itself.
    fn in_pieces(&self, place: Place) -> Option<i64> {
        let datatype = place.datatype;
        let (mut size, mut lower, mut extent, mut first, mut span) = (0, 0, 0, 0, 0);
        let [mut integers, mut addresses, mut types, mut combiner] = [0; 4];
        // SAFETY: these functions write exactly these values.
        let known = unsafe {
            (self.size)(datatype, &mut size) == SUCCESS
                && (self.extent)(datatype, &mut lower, &mut extent) == SUCCESS
                && (self.true_extent)(datatype, &mut first, &mut span) == SUCCESS
                && (self.envelope)(
                    datatype,
                    &mut integers,
                    &mut addresses,
                    &mut types,
                    &mut combiner,
                ) == SUCCESS
        };
        let len = size.checked_mul(place.count.into()).filter(|len| *len > 0);
        let len = len.filter(|_| known)?;
        let is_own = integers == 0 && addresses == 0 && types == 0;
        let is_dense = [lower, first] == [0; 2] && [extent, span] == [size as isize; 2];
        // A derived type without gaps may still be out of order. A type too long to pack is passed
        // on.
        (!is_dense || !is_own && c_int::try_from(len).is_ok()).then_some(len)
    }

    /// Receives into noncontiguous data. Returns the result of `MPI_Mrecv`. `MPI_Unpack` needs
    /// whole elements, but a message may end within one: the remainder of the place is packed
    /// first, and unpacked unchanged.
    ///
    /// # Safety
    /// As for `MPI_Mrecv`; `len` is the number of bytes.
    unsafe fn receive(
        &self,
        place: Place,
        len: i64,
        message: *mut Handle,
        status: *mut Status,
    ) -> c_int {
        let Ok(len) = c_int::try_from(len) else {
            return self.refuse(ERR_COUNT, "less than 2 GiB");
        };
        let Some(mut packed) = room(len as usize) else {
            return self.refuse(ERR_NO_MEM, "what there is memory for a second time");
        };
        let Place {
            buffer,
            count,
            datatype,
        } = place;
        let (mut own, mut at) = (Status::default(), 0);
        let status = if status.is_null() {
            &raw mut own
        } else {
            status
        };
        let bytes: *mut c_void = packed.as_mut_ptr().cast();
        // SAFETY: the caller's promise, and `packed` has `len` bytes.
        unsafe {
            (*status).bytes = 0; // not written if nothing is received
            let received = (self.mrecv)(bytes, len, self.packed, message, status);
            let came = (*status).bytes;
            let kept = self.keep(place, packed.get_mut(came..).unwrap_or_default(), len);
            let code = match kept {
                SUCCESS => (self.unpack)(bytes, len, &mut at, buffer, count, datatype, self.own),
                code => code,
            };
            match received {
                SUCCESS => code,
                received => received,
            }
        }
    }

    /// Fills `rest` with the last bytes of a place of `len` bytes. Returns an MPI result code.
    ///
    /// # Safety
    /// The place may be read.
    unsafe fn keep(&self, place: Place, rest: &mut [u8], len: c_int) -> c_int {
        if rest.is_empty() {
            return SUCCESS;
        }
        let Some(mut all) = room(len as usize) else {
            return self.refuse(ERR_NO_MEM, "what there is memory for three times");
        };
        let (mut end, to) = (0, all.as_mut_ptr().cast());
        let Place {
            buffer,
            count,
            datatype,
        } = place;
        // SAFETY: the caller's promise, and `all` has `len` bytes.
        let code = unsafe { (self.pack)(buffer, count, datatype, to, len, &mut end, self.own) };
        rest.copy_from_slice(&all[all.len() - rest.len()..]);
        code
    }

    /// Reports a place that is too large for the available memory or for `MPI_Unpack`.
    fn refuse(&self, code: c_int, most: &str) -> c_int {
        let text =
            format!("marline: MPI_Mrecv and MPI_Imrecv receive {most} into a datatype with gaps");
        let line = Code::MatchedReceive.mark(&text) + "\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
        // SAFETY: a communicator whose error handler is called.
        unsafe { (self.error)(self.own, code) };
        code
    }

    /// Makes a completed request with this status. Returns the result of `MPI_Grequest_start`.
    ///
    /// # Safety
    /// There is room for a handle at `request`.
    unsafe fn done(&self, status: Status, request: *mut Handle) -> c_int {
        let state = Box::into_raw(Box::new(status)).cast();
        // SAFETY: the caller's promise; `free` gets the status back when it is not queried any
        // more.
        unsafe {
            match (self.start)(query, free, cancel, state, request) {
                SUCCESS => (self.complete)(*request),
                code => {
                    free(state);
                    code
                }
            }
        }
    }
}

/// Zeroed memory, if there is enough.
fn room(len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut Status) -> c_int {
    // SAFETY: the status of `done`, and Open MPI's status of the request.
    unsafe { *status = *state.cast::<Status>() };
    SUCCESS
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the status of `done`, used for the last time.
    drop(unsafe { Box::from_raw(state.cast::<Status>()) });
    SUCCESS
}

unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

/// Open MPI and the number of bytes of the place, if this library must receive the message.
///
/// # Safety
///
/// As for `MPI_Mrecv`.
unsafe fn wanted(place: Place, message: *mut Handle) -> Option<(&'static OpenMpi, i64)> {
    let mpi = pml_cm().filter(|_| place.count > 0)?;
    // SAFETY: the caller's promise; Open MPI itself reports a null pointer.
    let message = unsafe { message.as_ref() }?;
    let len = mpi.in_pieces(place)?;
    (*message != mpi.no_proc).then_some((mpi, len))
}

/// # Safety
/// As for `MPI_Mrecv`; `name` is that of the called function.
pub unsafe fn receive(
    name: &CStr,
    place: Place,
    message: *mut Handle,
    status: *mut Status,
) -> c_int {
    // SAFETY: the caller's promise, and the MPI's function of this name.
    unsafe {
        if let Some((mpi, len)) = wanted(place, message) {
            return mpi.receive(place, len, message, status);
        }
        let Some(next) = next(name) else {
            return ABSENT;
        };
        let next: MrecvFn = transmute(next);
        next(place.buffer, place.count, place.datatype, message, status)
    }
}

/// # Safety
/// As for `MPI_Imrecv`; `name` is that of the called function.
pub unsafe fn begin(
    name: &CStr,
    place: Place,
    message: *mut Handle,
    request: *mut Handle,
) -> c_int {
    // SAFETY: the caller's promise, and the MPI's function of this name.
    unsafe {
        if let Some((mpi, len)) = wanted(place, message) {
            let mut status = Status::default();
            return match mpi.receive(place, len, message, &mut status) {
                SUCCESS => mpi.done(status, request),
                code => {
                    *request = mpi.no_request;
                    code
                }
            };
        }
        let Some(next) = next(name) else {
            return ABSENT;
        };
        let next: ImrecvFn = transmute(next);
        next(place.buffer, place.count, place.datatype, message, request)
    }
}

/// Defines the functions under their MPI and PMPI names; the last argument points to an `$out`.
macro_rules! exports {
    ($through:ident, $out:ty: $($name:ident = $text:literal),*) => { $(
        /// `MPI_Mrecv` or `MPI_Imrecv`.
        ///
        /// # Safety
        /// As for the MPI's function.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            buffer: *mut c_void,
            count: c_int,
            datatype: Handle,
            message: *mut Handle,
            out: *mut $out,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $through($text, Place { buffer, count, datatype }, message, out) }
        }
    )* };
}

exports!(receive, Status: MPI_Mrecv = c"MPI_Mrecv", PMPI_Mrecv = c"PMPI_Mrecv");
exports!(begin, Handle: MPI_Imrecv = c"MPI_Imrecv", PMPI_Imrecv = c"PMPI_Imrecv");
