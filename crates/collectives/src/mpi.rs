//! The MPI of the process: its functions, found by name, and its constants, which differ from one
//! binary interface to the other. Nothing here was compiled with a header of an MPI.

use std::ffi::{c_int, c_void, CStr, CString};
use std::mem::transmute;
use std::sync::OnceLock;

/// A handle of the MPI: a pointer (Open MPI, MPI 5.0's binary interface), or an `int` (MPICH and
/// Intel MPI), of which a register has more bits than it says. [`Mpi::handle`] makes one of what a
/// caller gave.
pub type Handle = usize;

/// `MPI_SUCCESS`, of all.
pub const SUCCESS: c_int = 0;
/// Said where there is no MPI behind this library.
pub const ABSENT: c_int = 1;

pub type BcastFn = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle) -> c_int;
pub type BcastLongFn = unsafe extern "C" fn(*mut c_void, isize, Handle, c_int, Handle) -> c_int;
type IntOfFn = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type ExtentFn = unsafe extern "C" fn(Handle, *mut isize, *mut isize) -> c_int;
type EnvelopeFn =
    unsafe extern "C" fn(Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
type AllgatherFn =
    unsafe extern "C" fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle) -> c_int;
type AllreduceFn =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
type BarrierFn = unsafe extern "C" fn(Handle) -> c_int;
type IprobeFn = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut c_void) -> c_int;
type PackFn = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Handle,
    *mut c_void,
    c_int,
    *mut c_int,
    Handle,
) -> c_int;
type UnpackFn = unsafe extern "C" fn(
    *const c_void,
    c_int,
    *mut c_int,
    *mut c_void,
    c_int,
    Handle,
    Handle,
) -> c_int;
pub type CopyFn =
    unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
pub type DeleteFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;
type KeyvalFn = unsafe extern "C" fn(CopyFn, DeleteFn, *mut c_int, *mut c_void) -> c_int;
type SetAttrFn = unsafe extern "C" fn(Handle, c_int, *mut c_void) -> c_int;
type GetAttrFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_int) -> c_int;
type ErrorFn = unsafe extern "C" fn(Handle, c_int) -> c_int;
type AbortFn = unsafe extern "C" fn(Handle, c_int) -> c_int;
type VersionFn = unsafe extern "C" fn(*mut u8, *mut c_int) -> c_int;

/// Room for the text of `MPI_Get_library_version` of any MPI: MPICH's has 8,192 bytes.
const VERSION_ROOM: usize = 16_384;
/// Room for an `MPI_Status` of any MPI.
const STATUS_ROOM: usize = 256;

/// Values that the MPI's header defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Constants {
    /// Handles are `int`s.
    ints: bool,
    world: Handle,
    own: Handle,
    byte: Handle,
    int: Handle,
    and: Handle,
    least: Handle,
    /// `MPI_ERR_TRUNCATE`, `MPI_ERR_OTHER`.
    truncate: c_int,
    other: c_int,
}

/// MPICH 3.1 and later and Intel MPI, whose binary interface is one.
const MPICH: Constants = Constants {
    ints: true,
    world: 0x4400_0000,
    own: 0x4400_0001,
    byte: 0x4c00_010d,
    int: 0x4c00_0405,
    and: 0x5800_0006,
    least: 0x5800_0002,
    truncate: 14,
    other: 15,
};

/// The binary interface of MPI 5.0, whose handles are small numbers as pointers.
const MPI_5: Constants = Constants {
    ints: false,
    world: 0x101,
    own: 0x102,
    byte: 0x247,
    int: 0x209,
    and: 0x28,
    least: 0x22,
    truncate: 15,
    other: 16,
};

/// The MPI of the process.
pub struct Mpi {
    constants: Constants,
    rank: IntOfFn,
    size: IntOfFn,
    is_inter: IntOfFn,
    type_size: IntOfFn,
    extent: ExtentFn,
    envelope: EnvelopeFn,
    allgather: AllgatherFn,
    allreduce: AllreduceFn,
    barrier: BarrierFn,
    iprobe: IprobeFn,
    pack: PackFn,
    unpack: UnpackFn,
    create_keyval: KeyvalFn,
    set_attr: SetAttrFn,
    get_attr: GetAttrFn,
    error: ErrorFn,
    abort: AbortFn,
    initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    finalized: unsafe extern "C" fn(*mut c_int) -> c_int,
}

/// The MPI, if it is one that is known here and multicast is wanted.
pub fn find() -> Option<&'static Mpi> {
    static FOUND: OnceLock<Option<Mpi>> = OnceLock::new();
    FOUND
        .get_or_init(|| crate::provider::is_wanted().then(look).flatten())
        .as_ref()
}

/// The function of this name behind this library.
pub fn next(name: &CStr) -> Option<*mut c_void> {
    dlsym(libc::RTLD_NEXT, name).or_else(|| dlsym(private()?, name))
}

/// A function, or a variable, of the MPI.
pub fn function(name: &CStr) -> Option<*mut c_void> {
    dlsym(libc::RTLD_DEFAULT, name).or_else(|| dlsym(private()?, name))
}

/// Says if the first function of this name is this library's.
pub fn is_own(name: &CStr) -> bool {
    // SAFETY: all zeroes is a valid Dl_info; dladdr fills it for an address of a library.
    let base = |address: *const c_void| unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info.dli_fbase)
    };
    let found = function(name).and_then(|f| base(f));
    found.is_some() && found == base(is_own as *const c_void)
}

/// The MPI's library where it was loaded privately, as by Python: no search by name finds it then.
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
    // Before it is loaded nobody calls a function of it.
    FOUND
        .get_or_init(open)
        .map(|library| library as *mut c_void)
}

/// Keeps the path of the first library whose name is that of an MPI.
unsafe extern "C" fn note(object: *mut libc::dl_phdr_info, _: usize, path: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of an object, and what `private` gave.
    let (name, path) = unsafe { ((*object).dlpi_name, &mut *path.cast::<Option<CString>>()) };
    if name.is_null() {
        return 0;
    }
    // SAFETY: a C string of the dynamic linker's.
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

fn look() -> Option<Mpi> {
    let constants = constants()?;
    // SAFETY: functions of these names have these types in every MPI; handles are passed in a
    // register, of which a callee with a smaller type takes no more than its own.
    unsafe {
        Some(Mpi {
            constants,
            rank: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_rank")?),
            size: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_size")?),
            is_inter: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_test_inter")?),
            type_size: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Type_size")?),
            extent: transmute::<*mut c_void, ExtentFn>(function(c"PMPI_Type_get_extent")?),
            envelope: transmute::<*mut c_void, EnvelopeFn>(function(c"PMPI_Type_get_envelope")?),
            allgather: transmute::<*mut c_void, AllgatherFn>(function(c"PMPI_Allgather")?),
            allreduce: transmute::<*mut c_void, AllreduceFn>(function(c"PMPI_Allreduce")?),
            barrier: transmute::<*mut c_void, BarrierFn>(function(c"PMPI_Barrier")?),
            iprobe: transmute::<*mut c_void, IprobeFn>(function(c"PMPI_Iprobe")?),
            pack: transmute::<*mut c_void, PackFn>(function(c"PMPI_Pack")?),
            unpack: transmute::<*mut c_void, UnpackFn>(function(c"PMPI_Unpack")?),
            create_keyval: transmute::<*mut c_void, KeyvalFn>(function(
                c"PMPI_Comm_create_keyval",
            )?),
            set_attr: transmute::<*mut c_void, SetAttrFn>(function(c"PMPI_Comm_set_attr")?),
            get_attr: transmute::<*mut c_void, GetAttrFn>(function(c"PMPI_Comm_get_attr")?),
            error: transmute::<*mut c_void, ErrorFn>(function(c"PMPI_Comm_call_errhandler")?),
            abort: transmute::<*mut c_void, AbortFn>(function(c"PMPI_Abort")?),
            initialized: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(
                function(c"PMPI_Initialized")?,
            ),
            finalized: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(
                function(c"PMPI_Finalized")?,
            ),
        })
    }
}

/// The constants of the MPI, by what it says of itself.
fn constants() -> Option<Constants> {
    let version = function(c"PMPI_Get_library_version")?;
    // MPICH with the interface of MPI 5.0 says the same of itself, and has other handles.
    if is_of_mpi_5(version)? {
        return Some(MPI_5);
    }
    let mut text = vec![0; VERSION_ROOM];
    let mut len = 0;
    // SAFETY: the function of this name, which may be called before MPI_Init; it has more room than
    // any MPI asks for.
    let told = unsafe {
        let version: VersionFn = transmute(version);
        version(text.as_mut_ptr(), &mut len) == SUCCESS
    };
    let text = String::from_utf8_lossy(&text[..usize::try_from(len).ok()?.min(VERSION_ROOM)]);
    if !told {
        return None;
    }
    match text {
        text if text.starts_with("Open MPI") => open_mpi(),
        text if text.contains("MPICH") || text.contains("Intel(R) MPI") => Some(MPICH),
        _ => None,
    }
}

/// Tells if a function is of a library with the interface of MPI 5.0; `None`: nobody knows.
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

/// Open MPI's handles are addresses of what it exports.
fn open_mpi() -> Option<Constants> {
    let object = |name: &CStr| Some(function(name)? as Handle);
    Some(Constants {
        ints: false,
        world: object(c"ompi_mpi_comm_world")?,
        own: object(c"ompi_mpi_comm_self")?,
        byte: object(c"ompi_mpi_byte")?,
        int: object(c"ompi_mpi_int")?,
        and: object(c"ompi_mpi_op_band")?,
        least: object(c"ompi_mpi_op_min")?,
        truncate: 15,
        other: 16,
    })
}

/// The parts of a datatype that a broadcast has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of data of one element.
    pub size: usize,
    /// Elements lie one after another without a gap, in order.
    pub is_plain: bool,
}

impl Mpi {
    /// Says if it is Open MPI.
    pub fn is_open_mpi(&self) -> bool {
        !self.constants.ints && self.constants != MPI_5
    }

    /// A handle that a caller gave.
    pub fn handle(&self, given: Handle) -> Handle {
        match self.constants.ints {
            true => given as u32 as Handle,
            false => given,
        }
    }

    /// The handle that lies somewhere; `None` for nowhere.
    ///
    /// # Safety
    /// There is one, unless `at` is null.
    pub unsafe fn read(&self, at: *const Handle) -> Option<Handle> {
        // SAFETY: the caller's promise; an `int` is read where handles are such.
        (!at.is_null()).then(|| unsafe {
            match self.constants.ints {
                true => *at.cast::<u32>() as Handle,
                false => *at,
            }
        })
    }

    /// The place of a handle of several.
    ///
    /// # Safety
    /// There are so many and one more.
    pub unsafe fn at(&self, several: *mut Handle, at: usize) -> *mut Handle {
        // SAFETY: the caller's promise.
        unsafe {
            match self.constants.ints {
                true => several.cast::<u32>().add(at).cast(),
                false => several.add(at),
            }
        }
    }

    fn int_of(&self, function: IntOfFn, of: Handle) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: all such functions write one int.
        (unsafe { function(of, &mut value) } == SUCCESS).then_some(value)
    }

    /// Rank and number of ranks.
    pub fn rank_and_size(&self, comm: Handle) -> Option<(usize, usize)> {
        let rank = usize::try_from(self.int_of(self.rank, comm)?).ok()?;
        Some((rank, usize::try_from(self.int_of(self.size, comm)?).ok()?))
    }

    /// Says if it is an intercommunicator.
    pub fn is_inter(&self, comm: Handle) -> Option<bool> {
        Some(self.int_of(self.is_inter, comm)? != 0)
    }

    /// The layout of a datatype; `None`: it is none, or too long for an `int`.
    pub fn layout(&self, datatype: Handle) -> Option<Layout> {
        let size = usize::try_from(self.int_of(self.type_size, datatype)?).ok()?;
        let (mut lower, mut extent) = (0, 0);
        let [mut integers, mut addresses, mut types, mut combiner] = [0; 4];
        // SAFETY: these functions write so many values.
        let told = unsafe {
            (self.extent)(datatype, &mut lower, &mut extent) == SUCCESS
                && (self.envelope)(
                    datatype,
                    &mut integers,
                    &mut addresses,
                    &mut types,
                    &mut combiner,
                ) == SUCCESS
        };
        // A type that is made of nothing else is one of the MPI's own.
        let own = integers == 0 && addresses == 0 && types == 0;
        told.then_some(Layout {
            size,
            is_plain: own && lower == 0 && extent as usize == size,
        })
    }

    /// Every rank's bytes, of which all give as many.
    pub fn gather(&self, comm: Handle, own: &[u8], ranks: usize) -> Option<Vec<u8>> {
        let len = c_int::try_from(own.len()).ok()?;
        let mut all = vec![0; own.len() * ranks];
        let byte = self.constants.byte;
        // SAFETY: `own` and `all` have as many bytes as the ranks give together.
        let result = unsafe {
            let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            (self.allgather)(from, len, byte, to, len, byte, comm)
        };
        (result == SUCCESS).then_some(all)
    }

    /// The bits that all ranks give.
    pub fn agree(&self, comm: Handle, own: c_int) -> Option<c_int> {
        self.reduce(comm, own, self.constants.and)
    }

    /// The least number that a rank gives.
    pub fn agree_least(&self, comm: Handle, own: c_int) -> Option<c_int> {
        self.reduce(comm, own, self.constants.least)
    }

    fn reduce(&self, comm: Handle, own: c_int, how: Handle) -> Option<c_int> {
        let mut all = 0;
        let int = self.constants.int;
        // SAFETY: one int each.
        let result = unsafe {
            let (from, to) = ((&raw const own).cast(), (&raw mut all).cast());
            (self.allreduce)(from, to, 1, int, how, comm)
        };
        (result == SUCCESS).then_some(all)
    }

    /// Waits for all ranks.
    pub fn barrier(&self, comm: Handle) {
        // SAFETY: a communicator. An error is told by the communicator's handler.
        let _ = unsafe { (self.barrier)(comm) };
    }

    /// The communicator of all; none before MPI is initialised and after it is finalised.
    pub fn world(&self) -> Option<Handle> {
        let (mut begun, mut over) = (0, 0);
        // SAFETY: both write one int, at any time.
        let told = unsafe {
            (self.initialized)(&mut begun) == SUCCESS && (self.finalized)(&mut over) == SUCCESS
        };
        (told && begun != 0 && over == 0).then_some(self.constants.world)
    }

    /// Lets the MPI make progress with what else the program has begun.
    pub fn progress(&self) {
        let mut flag = 0;
        let mut status = [0u64; STATUS_ROOM / 8];
        // SAFETY: a probe of the process's own communicator; there is room for the status.
        let _ = unsafe {
            let status = status.as_mut_ptr().cast();
            (self.iprobe)(0, 0, self.constants.own, &mut flag, status)
        };
    }

    /// Packs elements one after another; `false`: the MPI refuses.
    ///
    /// # Safety
    /// As of `MPI_Pack`.
    pub unsafe fn pack(
        &self,
        (buffer, count, datatype): (*const c_void, c_int, Handle),
        to: &mut [u8],
        comm: Handle,
    ) -> bool {
        let (mut at, Ok(len)) = (0, c_int::try_from(to.len())) else {
            return false;
        };
        let to = to.as_mut_ptr().cast();
        // SAFETY: the caller's promise, and the length of `to`.
        let result = unsafe { (self.pack)(buffer, count, datatype, to, len, &mut at, comm) };
        result == SUCCESS && at == len
    }

    /// Unpacks what [`Mpi::pack`] packed.
    ///
    /// # Safety
    /// As of `MPI_Unpack`.
    pub unsafe fn unpack(
        &self,
        from: &[u8],
        (buffer, count, datatype): (*mut c_void, c_int, Handle),
        comm: Handle,
    ) -> bool {
        let (mut at, Ok(len)) = (0, c_int::try_from(from.len())) else {
            return false;
        };
        let from = from.as_ptr().cast();
        // SAFETY: the caller's promise, and the length of `from`.
        let result = unsafe { (self.unpack)(from, len, &mut at, buffer, count, datatype, comm) };
        result == SUCCESS
    }

    /// A key for attributes of communicators.
    pub fn create_keyval(&self, copy: CopyFn, delete: DeleteFn) -> Option<c_int> {
        let mut key = 0;
        // SAFETY: two functions that live as long as the process.
        let result = unsafe { (self.create_keyval)(copy, delete, &mut key, std::ptr::null_mut()) };
        (result == SUCCESS).then_some(key)
    }

    /// Keeps an attribute with a communicator.
    pub fn set_attr(&self, comm: Handle, key: c_int, value: *mut c_void) -> bool {
        // SAFETY: the MPI keeps the pointer and does not follow it.
        unsafe { (self.set_attr)(comm, key, value) == SUCCESS }
    }

    /// The attribute of a communicator.
    pub fn attr(&self, comm: Handle, key: c_int) -> Option<*mut c_void> {
        let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: it writes a pointer and an int.
        let result = unsafe { (self.get_attr)(comm, key, (&raw mut value).cast(), &mut found) };
        (result == SUCCESS && found != 0).then_some(value)
    }

    /// Has the communicator's error handler called: the number to return. `wrong`: the program's
    /// ranks disagree about a length or a root.
    pub fn fail(&self, comm: Handle, wrong: bool) -> c_int {
        let code = self.code(wrong);
        // SAFETY: a communicator of the caller's.
        unsafe { (self.error)(comm, code) };
        code
    }

    /// Only the number.
    pub fn code(&self, wrong: bool) -> c_int {
        match wrong {
            true => self.constants.truncate,
            false => self.constants.other,
        }
    }

    /// `MPI_BYTE`.
    pub fn byte(&self) -> Handle {
        self.constants.byte
    }

    /// Ends the job.
    pub fn abort(&self) {
        // SAFETY: the communicator of all, at any time between MPI_Init and MPI_Finalize.
        let _ = self.world().map(|world| unsafe { (self.abort)(world, 1) });
    }
}
