//! The constants of the MPIs' binary interfaces.

use marline_symbols::function;
use std::ffi::{c_int, c_void, CStr};
use std::mem::transmute;

/// A handle of the MPI: a pointer (Open MPI, MPI 5.0's binary interface), or an `int` (MPICH and
/// Intel MPI), whose upper bits in a register are undefined. `Mpi::handle` normalises handles given
/// by callers.
pub type Handle = usize;

/// `MPI_SUCCESS` of every MPI.
pub const SUCCESS: c_int = 0;

type VersionFn = unsafe extern "C" fn(*mut u8, *mut c_int) -> c_int;

/// Bytes that hold the text of any MPI's `MPI_Get_library_version`: MPICH's has 8,192.
const VERSION_ROOM: usize = 16_384;

/// `MPI_ERR_OTHER` and `MPIX_ERR_PROC_FAILED` of Open MPI.
const OPEN_MPI_OTHER: c_int = 16;
const OPEN_MPI_PROC_FAILED: c_int = 75;

/// Values that the MPI's header defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Handles are `int`s.
    pub ints: bool,
    /// The MPI's own short collective calls are fast (docs/design/collectives.md).
    pub quick: bool,
    pub world: Handle,
    pub own: Handle,
    pub byte: Handle,
    pub int: Handle,
    pub and: Handle,
    /// `MPI_IN_PLACE`.
    pub in_place: usize,
    /// `MPI_ERR_TRUNCATE`, `MPI_ERR_OTHER`.
    pub truncate: c_int,
    pub other: c_int,
    /// The error code for a dead rank, or `other` if programs cannot tell errors apart.
    pub dead: c_int,
    pub handlers: Handlers,
}

/// The MPI's own error handlers: `MPI_ERRORS_ARE_FATAL`, `MPI_ERRORS_ABORT` (zero where the MPI has
/// none), `MPI_ERRORS_RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handlers {
    pub fatal: Handle,
    pub abort: Handle,
    pub returns: Handle,
}

/// MPICH 3.1 and later.
const MPICH: Constants = Constants {
    ints: true,
    quick: true,
    world: 0x4400_0000,
    own: 0x4400_0001,
    byte: 0x4c00_010d,
    int: 0x4c00_0405,
    and: 0x5800_0006,
    in_place: usize::MAX,
    truncate: 14,
    other: 15,
    dead: 15,
    handlers: Handlers {
        fatal: 0x5400_0000,
        abort: 0x5400_0003,
        returns: 0x5400_0001,
    },
};

/// Intel MPI, whose binary interface is MPICH's.
const INTEL: Constants = Constants {
    quick: false,
    ..MPICH
};

/// The binary interface of MPI 5.0, whose handles are small numbers as pointers.
pub const MPI_5: Constants = Constants {
    ints: false,
    quick: true,
    world: 0x101,
    own: 0x102,
    byte: 0x247,
    int: 0x209,
    and: 0x28,
    in_place: 1,
    truncate: 15,
    other: 16,
    dead: 16,
    handlers: Handlers {
        fatal: 0x141,
        abort: 0x142,
        returns: 0x143,
    },
};

/// The constants of the MPI, selected by its version text.
pub fn constants() -> Option<Constants> {
    let version = function(c"PMPI_Get_library_version")?;
    // MPICH with the interface of MPI 5.0 has the same version text but other handles.
    if is_of_mpi_5(version)? {
        return Some(MPI_5);
    }
    let mut text = vec![0; VERSION_ROOM];
    let mut len = 0;
    // SAFETY: the function of this name, which may be called before MPI_Init; the buffer is larger
    // than any MPI requires.
    let known = unsafe {
        let version: VersionFn = transmute(version);
        version(text.as_mut_ptr(), &mut len) == SUCCESS
    };
    let text = String::from_utf8_lossy(&text[..usize::try_from(len).ok()?.min(VERSION_ROOM)]);
    if !known {
        return None;
    }
    match text {
        text if text.starts_with("Open MPI") => open_mpi(),
        text if text.contains("Intel(R) MPI") => Some(INTEL),
        text if text.contains("MPICH") => Some(MPICH),
        _ => None,
    }
}

/// Returns whether a function belongs to a library with the interface of MPI 5.0; `None`: unknown.
fn is_of_mpi_5(function: *mut c_void) -> Option<bool> {
    // SAFETY: all zeroes is a valid Dl_info; dladdr fills it for an address of a library.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(function, &mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| CStr::from_ptr(info.dli_fname).to_string_lossy())?
    };
    let name = file.rsplit('/').next().unwrap_or(&file);
    Some(name.starts_with("libmpi_abi"))
}

/// The constants of Open MPI, whose handles are addresses of exported objects.
fn open_mpi() -> Option<Constants> {
    let object = |name: &CStr| Some(function(name)? as Handle);
    Some(Constants {
        ints: false,
        quick: false,
        world: object(c"ompi_mpi_comm_world")?,
        own: object(c"ompi_mpi_comm_self")?,
        byte: object(c"ompi_mpi_byte")?,
        int: object(c"ompi_mpi_int")?,
        and: object(c"ompi_mpi_op_band")?,
        in_place: 1,
        truncate: 15,
        other: OPEN_MPI_OTHER,
        dead: match function(c"PMPIX_Comm_is_revoked") {
            Some(_) => OPEN_MPI_PROC_FAILED,
            None => OPEN_MPI_OTHER,
        },
        handlers: Handlers {
            fatal: object(c"ompi_mpi_errors_are_fatal")?,
            abort: object(c"ompi_mpi_errors_abort").unwrap_or(0),
            returns: object(c"ompi_mpi_errors_return")?,
        },
    })
}

/// The predefined operations from `MPI_MAX` to `MPI_MAXLOC`.
pub fn ops(constants: &Constants) -> Vec<Handle> {
    match *constants {
        MPICH | INTEL => (0x5800_0001..=0x5800_000c).collect(),
        MPI_5 => vec![
            0x21, 0x22, 0x23, 0x24, 0x28, 0x29, 0x2a, 0x30, 0x31, 0x32, 0x38, 0x39,
        ],
        _ => [
            c"ompi_mpi_op_max",
            c"ompi_mpi_op_min",
            c"ompi_mpi_op_sum",
            c"ompi_mpi_op_prod",
            c"ompi_mpi_op_land",
            c"ompi_mpi_op_band",
            c"ompi_mpi_op_lor",
            c"ompi_mpi_op_bor",
            c"ompi_mpi_op_lxor",
            c"ompi_mpi_op_bxor",
            c"ompi_mpi_op_minloc",
            c"ompi_mpi_op_maxloc",
        ]
        .into_iter()
        .filter_map(|name| Some(function(name)? as Handle))
        .collect(),
    }
}
