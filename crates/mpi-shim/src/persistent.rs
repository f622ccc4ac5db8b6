//! Corrects persistent sends of Open MPI 4.1, which its collectives use too. For contiguous data
//! that does not begin at its buffer's start (a block of an array, by `MPI_Type_create_subarray`)
//! its pml/cm sends the bytes at the start instead, over any provider. Here such data is sent with
//! a buffer pointer and datatype adjusted so that it begins at the start (docs/design/mpi.md).
//!
//! Open MPI's collectives call the pml through its function table, not MPI's functions. So the
//! function is replaced in the table once `MPI_Init` has filled it.

use crate::buffered::{made, MakeFn, Send};
use marline_symbols::{function, next, ExtentFn};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

type Handle = *mut c_void;

type Words = *mut *mut *mut c_char;
type InitFn = unsafe extern "C" fn(*mut c_int, Words) -> c_int;
type InitThreadFn = unsafe extern "C" fn(*mut c_int, Words, c_int, *mut c_int) -> c_int;
type VersionFn = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type SizeFn = unsafe extern "C" fn(Handle, *mut i64) -> c_int;
type TypeFn = unsafe extern "C" fn(*mut Handle) -> c_int;
type HindexedFn =
    unsafe extern "C" fn(c_int, *const c_int, *const isize, Handle, *mut Handle) -> c_int;
/// `pml_isend_init`: buffer, count, datatype, destination, tag, mode, communicator, request.
type SendInitFn = unsafe extern "C" fn(
    *const c_void,
    usize,
    Handle,
    c_int,
    c_int,
    c_int,
    Handle,
    *mut Handle,
) -> c_int;

const SUCCESS: c_int = 0;
/// Error code returned if there is no MPI behind this library; an error in any MPI.
const ABSENT: c_int = 1;
/// Index of `pml_isend_init` in the pml's function table (`mca_pml_base_module_2_0_0_t`), the same
/// in all Open MPI 4.
const SEND_INIT: usize = 9;
/// `MCA_PML_BASE_SEND_BUFFERED`.
const BUFFERED: c_int = 2;
/// `MPI_MAX_LIBRARY_VERSION_STRING` of Open MPI is 256.
const VERSION_MAX: usize = 1024;

/// Open MPI's functions.
struct OpenMpi {
    send_init: SendInitFn,
    size: SizeFn,
    true_extent: ExtentFn<Handle>,
    hindexed: HindexedFn,
    commit: TypeFn,
    free: TypeFn,
}

static OPEN_MPI: OnceLock<OpenMpi> = OnceLock::new();

/// Replaces Open MPI's function by [`send_init`], if this is Open MPI 4.
fn replace() -> Option<()> {
    let table: *mut c_void = function(c"mca_pml").filter(|_| is_open_mpi_4())?;
    // SAFETY: Open MPI 4's function table, which is written only by MPI_Init.
    let slot = unsafe { &*table.cast::<AtomicPtr<c_void>>().add(SEND_INIT) };
    let theirs = slot.load(Ordering::Acquire);
    if theirs.is_null() {
        return None;
    }
    // SAFETY: functions of these names have these types in Open MPI.
    let mpi = unsafe {
        OpenMpi {
            send_init: transmute::<*mut c_void, SendInitFn>(theirs),
            size: transmute::<*mut c_void, SizeFn>(function(c"PMPI_Type_size_x")?),
            true_extent: transmute::<*mut c_void, ExtentFn<Handle>>(function(
                c"PMPI_Type_get_true_extent",
            )?),
            hindexed: transmute::<*mut c_void, HindexedFn>(function(c"PMPI_Type_create_hindexed")?),
            commit: transmute::<*mut c_void, TypeFn>(function(c"PMPI_Type_commit")?),
            free: transmute::<*mut c_void, TypeFn>(function(c"PMPI_Type_free")?),
        }
    };
    // Only once: a second call would find this library's function in the table.
    OPEN_MPI.set(mpi).ok()?;
    slot.store(send_init as *mut c_void, Ordering::Release);
    Some(())
}

fn is_open_mpi_4() -> bool {
    let Some(version) = function(c"PMPI_Get_library_version") else {
        return false;
    };
    let (mut text, mut len) = ([0u8; VERSION_MAX], 0);
    // SAFETY: a function of this type, with enough room for its NUL-terminated output.
    let text = unsafe {
        let version = transmute::<*mut c_void, VersionFn>(version);
        if function(c"ompi_mpi_init").is_none()
            || version(text.as_mut_ptr().cast(), &mut len) != SUCCESS
        {
            return false;
        }
        CStr::from_bytes_until_nul(&text)
    };
    text.is_ok_and(|text| text.to_bytes().starts_with(b"Open MPI v4."))
}

impl OpenMpi {
    /// # Safety
    /// As for Open MPI's `pml_isend_init`.
    unsafe fn send(&self, send: &Send, mode: c_int, request: *mut Handle) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            (self.send_init)(
                send.buffer,
                send.count,
                send.datatype,
                send.to,
                send.tag,
                mode,
                send.communicator,
                request,
            )
        }
    }

    /// The bytes before the data of a type, if there are any.
    fn before(&self, datatype: Handle) -> Option<isize> {
        let (mut size, mut first, mut span) = (0, 0, 0);
        // SAFETY: these functions write exactly these values.
        let known = unsafe {
            (self.size)(datatype, &mut size) == SUCCESS
                && (self.true_extent)(datatype, &mut first, &mut span) == SUCCESS
        };
        Some(first).filter(|first| known && size > 0 && *first != 0)
    }
}

/// Calls Open MPI's function for the same data, with a buffer that begins where the data begins.
///
/// # Safety
///
/// As for Open MPI's function.
unsafe extern "C" fn send_init(
    buffer: *const c_void,
    count: usize,
    datatype: Handle,
    to: c_int,
    tag: c_int,
    mode: c_int,
    communicator: Handle,
    request: *mut Handle,
) -> c_int {
    let send = Send {
        buffer,
        count,
        datatype,
        to,
        tag,
        communicator,
    };
    // SAFETY: the caller's promise.
    unsafe { init(&send, mode, request) }
}

/// Makes another request of a buffered send.
///
/// # Safety
/// As for Open MPI's `pml_isend_init`.
unsafe fn buffered(send: &Send, request: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { init(send, BUFFERED, request) }
}

/// # Safety
/// As for Open MPI's `pml_isend_init`.
unsafe fn init(send: &Send, mode: c_int, request: *mut Handle) -> c_int {
    let Some(mpi) = OPEN_MPI.get() else {
        return ABSENT; // set before this function can be called
    };
    // SAFETY: the caller's promise. The request retains the type that is freed here.
    unsafe {
        let code = match mpi.before(send.datatype) {
            None => mpi.send(send, mode, request),
            Some(before) => {
                let mut datatype = send.datatype;
                let back = before.wrapping_neg();
                let made = (mpi.hindexed)(1, &1, &back, send.datatype, &mut datatype);
                if made != SUCCESS {
                    return made;
                }
                let mut code = (mpi.commit)(&mut datatype);
                if code == SUCCESS {
                    let buffer = send.buffer.wrapping_byte_offset(before);
                    let moved = Send {
                        buffer,
                        datatype,
                        ..*send
                    };
                    code = mpi.send(&moved, mode, request);
                }
                (mpi.free)(&mut datatype);
                code
            }
        };
        if code == SUCCESS {
            let again = (Send { ..*send }, buffered as MakeFn);
            made(*request, (mode == BUFFERED).then_some(again));
        }
        code
    }
}

/// Defines an MPI initialisation function under its MPI or PMPI name.
macro_rules! begins {
    ($name:ident = $text:literal, $type:ty, $($argument:ident: $of:ty),*) => {
        /// The MPI's function, followed by `replace`.
        ///
        /// # Safety
        /// As for the MPI's function.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($argument: $of),*) -> c_int {
            let Some(next) = next($text) else {
                return ABSENT;
            };
            // SAFETY: the MPI's function of this name, and the caller's promise.
            let code = unsafe { transmute::<*mut c_void, $type>(next)($($argument),*) };
            if code == SUCCESS {
                // No effect with another MPI.
                let _ = replace();
            }
            code
        }
    };
}

begins!(MPI_Init = c"MPI_Init", InitFn, argc: *mut c_int, argv: Words);
begins!(PMPI_Init = c"PMPI_Init", InitFn, argc: *mut c_int, argv: Words);
begins!(MPI_Init_thread = c"MPI_Init_thread", InitThreadFn,
    argc: *mut c_int, argv: Words, wanted: c_int, given: *mut c_int);
begins!(PMPI_Init_thread = c"PMPI_Init_thread", InitThreadFn,
    argc: *mut c_int, argv: Words, wanted: c_int, given: *mut c_int);
