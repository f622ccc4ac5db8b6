//! The few functions of an MPI that a rank needs, from its library: with the handles of MPICH's
//! binary interface, which are numbers, or of Open MPI's, which are addresses.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::mem::transmute_copy;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

type InitFn = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type FinalizeFn = unsafe extern "C" fn() -> c_int;
type NumberFn<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
type SendFn<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type ReceiveFn<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type WaitFn<H> = unsafe extern "C" fn(c_int, *mut H, *mut c_void) -> c_int;

/// MPICH's handles of MPI_COMM_WORLD and MPI_BYTE.
const MPICH_WORLD: c_int = 0x4400_0000;
const MPICH_BYTE: c_int = 0x4c00_010d;
/// MPI_STATUSES_IGNORE of MPICH and of Open MPI.
const MPICH_IGNORE: usize = 1;
const OPEN_MPI_IGNORE: usize = 0;

/// A loaded library; it stays loaded.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

impl Library {
    /// Loads a library; the MPI's own plug-ins find its symbols.
    fn load(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("{}: a name with a zero", path.display()))?;
        // SAFETY: a C string; the constructors of an MPI's library have no requirements.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            // SAFETY: the error of the call above, valid until the next call of the loader.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(why.to_string_lossy().into_owned());
        }
        Ok(Library(library))
    }

    fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open library and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// A function of the library.
    ///
    /// # Safety
    ///
    /// `F` is a function pointer with the type of the function of this name.
    unsafe fn function<F>(self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.symbol(name);
        let found =
            found.ok_or_else(|| format!("no {} in the MPI's library", name.to_string_lossy()))?;
        // SAFETY: the sizes are equal, and the caller vouches for the type.
        Ok(unsafe { transmute_copy(&found) })
    }
}

/// All ranks of a job, by an MPI with handles of type `H`. Ends with MPI_Finalize.
pub(crate) struct World<H> {
    world: H,
    byte: H,
    /// A request before it is posted.
    none: H,
    statuses_ignore: *mut c_void,
    send: SendFn<H>,
    receive: ReceiveFn<H>,
    wait_all: WaitFn<H>,
    finalize: FinalizeFn,
    /// This rank's number.
    pub(crate) rank: usize,
    /// Number of ranks.
    pub(crate) size: usize,
}

/// A rank and a job with either binary interface.
pub(crate) enum Job {
    /// MPICH, Intel MPI.
    Mpich(World<c_int>),
    /// Open MPI.
    OpenMpi(World<*mut c_void>),
}

/// Messages by peer and tag.
pub(crate) type Sends<'a> = Vec<(&'a [u8], usize, c_int)>;
/// Buffers of messages by peer and tag.
pub(crate) type Receives<'a> = Vec<(&'a mut [u8], usize, c_int)>;

impl Job {
    /// Loads the MPI's library and starts the MPI.
    pub(crate) fn start(library: &Path) -> Result<Job, String> {
        let library = Library::load(library)?;
        let open_mpi = |name: &CStr| library.symbol(name);
        match (open_mpi(c"ompi_mpi_comm_world"), open_mpi(c"ompi_mpi_byte")) {
            (Some(world), Some(byte)) => {
                let handles = (world, byte, null_mut());
                Ok(Job::OpenMpi(World::start(
                    library,
                    handles,
                    OPEN_MPI_IGNORE,
                )?))
            }
            _ => {
                let handles = (MPICH_WORLD, MPICH_BYTE, 0);
                Ok(Job::Mpich(World::start(library, handles, MPICH_IGNORE)?))
            }
        }
    }

    /// This rank's number, and the number of ranks.
    pub(crate) fn rank_of(&self) -> (usize, usize) {
        match self {
            Job::Mpich(world) => (world.rank, world.size),
            Job::OpenMpi(world) => (world.rank, world.size),
        }
    }

    /// Sends and receives these messages; returns when all have ended.
    pub(crate) fn exchange(&self, sends: Sends<'_>, receives: Receives<'_>) -> Result<(), String> {
        match self {
            Job::Mpich(world) => world.exchange(sends, receives),
            Job::OpenMpi(world) => world.exchange(sends, receives),
        }
    }
}

impl<H: Copy> World<H> {
    /// Starts the MPI. `H` is the type of all its handles; `ignore` is its MPI_STATUSES_IGNORE.
    fn start(
        library: Library,
        (world, byte, none): (H, H, H),
        ignore: usize,
    ) -> Result<World<H>, String> {
        // SAFETY: the types of these functions in the MPI standard, with the MPI's handles.
        let (init, finalize, rank_of, size_of, send, receive, wait_all) = unsafe {
            (
                library.function::<InitFn>(c"MPI_Init")?,
                library.function::<FinalizeFn>(c"MPI_Finalize")?,
                library.function::<NumberFn<H>>(c"MPI_Comm_rank")?,
                library.function::<NumberFn<H>>(c"MPI_Comm_size")?,
                library.function::<SendFn<H>>(c"MPI_Isend")?,
                library.function::<ReceiveFn<H>>(c"MPI_Irecv")?,
                library.function::<WaitFn<H>>(c"MPI_Waitall")?,
            )
        };
        // SAFETY: MPI_Init may be called without arguments.
        check("MPI_Init", unsafe { init(null_mut(), null_mut()) })?;
        let number = |name, of: NumberFn<H>| {
            let mut number = 0;
            // SAFETY: the MPI runs, and the number outlives the call.
            check(name, unsafe { of(world, &mut number) })?;
            usize::try_from(number).map_err(|e| e.to_string())
        };
        Ok(World {
            rank: number("MPI_Comm_rank", rank_of)?,
            size: number("MPI_Comm_size", size_of)?,
            world,
            byte,
            none,
            statuses_ignore: ignore as *mut c_void,
            send,
            receive,
            wait_all,
            finalize,
        })
    }

    fn exchange(&self, sends: Sends<'_>, receives: Receives<'_>) -> Result<(), String> {
        let mut requests = vec![self.none; sends.len() + receives.len()];
        let (for_receives, for_sends) = requests.split_at_mut(receives.len());
        for ((buffer, peer, tag), request) in receives.into_iter().zip(for_receives) {
            let (len, peer) = (buffer.len() as c_int, peer as c_int);
            let into = buffer.as_mut_ptr().cast();
            // SAFETY: the buffer has this length and stays borrowed until all requests have ended
            // below; without that the process ends.
            check("MPI_Irecv", unsafe {
                (self.receive)(into, len, self.byte, peer, tag, self.world, request)
            })?;
        }
        for ((buffer, peer, tag), request) in sends.into_iter().zip(for_sends) {
            let (len, peer) = (buffer.len() as c_int, peer as c_int);
            let from = buffer.as_ptr().cast();
            // SAFETY: as for receives.
            check("MPI_Isend", unsafe {
                (self.send)(from, len, self.byte, peer, tag, self.world, request)
            })?;
        }
        // SAFETY: this many requests, each posted once; no status is wanted.
        check("MPI_Waitall", unsafe {
            let count = requests.len() as c_int;
            (self.wait_all)(count, requests.as_mut_ptr(), self.statuses_ignore)
        })
    }
}

impl<H> Drop for World<H> {
    fn drop(&mut self) {
        // SAFETY: the MPI was started once, and no request is open.
        unsafe { (self.finalize)() };
    }
}

/// Ends the process if a call failed: requests may still use buffers. (By default an MPI does that
/// itself.)
fn check(name: &str, code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code if name == "MPI_Init" => Err(format!("{name} failed: {code}")),
        code => {
            eprintln!("marline: {name} failed: {code}");
            std::process::abort()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_mpi_is_refused_by_name() {
        let error = |path: &str| Job::start(Path::new(path)).err().unwrap();
        assert!(error("/no/such/libmpi.so").contains("/no/such/libmpi.so"));
        let libc = error("libc.so.6");
        assert_eq!(libc, "no MPI_Init in the MPI's library");
    }
}
