//! Looks up functions of the MPI by name, however it was loaded, for the libraries that are
//! preloaded into its ranks.

use std::ffi::{c_int, c_void, CStr, CString};
use std::sync::OnceLock;

/// `MPI_Pack`, with handles of type `H`.
pub type PackFn<H> =
    unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, *mut c_int, H) -> c_int;
/// `MPI_Unpack`.
pub type UnpackFn<H> =
    unsafe extern "C" fn(*const c_void, c_int, *mut c_int, *mut c_void, c_int, H, H) -> c_int;
/// `MPI_Type_get_extent`, `MPI_Type_get_true_extent`.
pub type ExtentFn<H> = unsafe extern "C" fn(H, *mut isize, *mut isize) -> c_int;
/// `MPI_Type_get_envelope`.
pub type EnvelopeFn<H> =
    unsafe extern "C" fn(H, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
/// `MPI_Comm_call_errhandler`.
pub type ErrorFn<H> = unsafe extern "C" fn(H, c_int) -> c_int;

/// The next function of this name in search order after this library.
pub fn next(name: &CStr) -> Option<*mut c_void> {
    dlsym(libc::RTLD_NEXT, name).or_else(|| dlsym(private()?, name))
}

/// A function or variable of the MPI.
pub fn function(name: &CStr) -> Option<*mut c_void> {
    dlsym(libc::RTLD_DEFAULT, name).or_else(|| dlsym(private()?, name))
}

/// A function of `libmarline-mpi.so`. That library only forwards the calls that it intercepts, so
/// it does not count as a foreign one.
const HANDS_ON: &CStr = c"marline_poll";

/// Returns whether the first function of this name is this library's or `libmarline-mpi.so`'s,
/// which only forwards calls.
pub fn is_own(name: &CStr) -> bool {
    // SAFETY: all zeroes is a valid Dl_info; dladdr fills it for an address of a library.
    let base = |address: *const c_void| unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info.dli_fbase)
    };
    let found = function(name).and_then(|f| base(f));
    let hands_on = function(HANDS_ON).and_then(|f| base(f));
    found.is_some() && (found == base(is_own as *const c_void) || found == hands_on)
}

/// The MPI's library if it was loaded privately (RTLD_LOCAL), as by Python: a search by name does
/// not find it then.
fn private() -> Option<*mut c_void> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let open = || {
        let mut path: Option<CString> = None;
        // SAFETY: `note` is called with a pointer to `path` while this call lasts; the library that
        // it names is there, and stays open.
        let library = unsafe {
            libc::dl_iterate_phdr(Some(note), (&raw mut path).cast());
            libc::dlopen(path?.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD)
        };
        (!library.is_null()).then_some(library as usize)
    };
    // No function of the MPI can be called before it is loaded, so the result may be cached.
    FOUND
        .get_or_init(open)
        .map(|library| library as *mut c_void)
}

/// Stores the path of the first library named like an MPI.
unsafe extern "C" fn note(object: *mut libc::dl_phdr_info, _: usize, path: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of an object, and the pointer that `private` passed.
    let (name, path) = unsafe { ((*object).dlpi_name, &mut *path.cast::<Option<CString>>()) };
    if name.is_null() {
        return 0;
    }
    // SAFETY: a C string of the dynamic linker.
    let name = unsafe { CStr::from_ptr(name) };
    let file = name
        .to_bytes()
        .rsplit(|b| *b == b'/')
        .next()
        .unwrap_or_default();
    let is_mpi = [&b"libmpi.so"[..], b"libmpich.so", b"libmpi_abi.so"];
    if !is_mpi.iter().any(|mpi| file.starts_with(mpi)) {
        return 0;
    }
    *path = Some(name.to_owned());
    1
}

fn dlsym(from: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle that dlsym defines, and a C string.
    let found = unsafe { libc::dlsym(from, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
