//! The MPI of the process: its functions, found by name. `abi` has its constants, which depend on
//! the binary interface. No MPI header is needed to compile this.

use crate::abi::{self, Constants, Handlers, MPI_5};
pub use crate::abi::{Handle, SUCCESS};
use crate::survival::{Agreement, Survival};
pub use marline_symbols::{function, is_own, next};
use marline_symbols::{EnvelopeFn, ErrorFn, ExtentFn, PackFn, UnpackFn};
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

/// Returned if there is no MPI behind this library.
pub const ABSENT: c_int = 1;

pub type BcastFn = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle) -> c_int;
pub type BcastLongFn = unsafe extern "C" fn(*mut c_void, isize, Handle, c_int, Handle) -> c_int;
type IntOfFn = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
pub type AllgatherFn =
    unsafe extern "C" fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle) -> c_int;
pub type AllreduceFn =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
pub type AllreduceLongFn =
    unsafe extern "C" fn(*const c_void, *mut c_void, isize, Handle, Handle, Handle) -> c_int;
type ReduceLocalFn =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle) -> c_int;
pub type AllgatherLongFn =
    unsafe extern "C" fn(*const c_void, isize, Handle, *mut c_void, isize, Handle, Handle) -> c_int;
pub type BarrierFn = unsafe extern "C" fn(Handle) -> c_int;
type IprobeFn = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut c_void) -> c_int;
pub type CopyFn =
    unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
pub type DeleteFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;
type KeyvalFn = unsafe extern "C" fn(CopyFn, DeleteFn, *mut c_int, *mut c_void) -> c_int;
type SetAttrFn = unsafe extern "C" fn(Handle, c_int, *mut c_void) -> c_int;
type GetAttrFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_int) -> c_int;
type AbortFn = unsafe extern "C" fn(Handle, c_int) -> c_int;
type GetHandlerFn = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type SetHandlerFn = unsafe extern "C" fn(Handle, Handle) -> c_int;
type SplitFn = unsafe extern "C" fn(Handle, c_int, c_int, *mut Handle) -> c_int;
type OfHandleFn = unsafe extern "C" fn(*mut Handle) -> c_int;

/// Result of [`Mpi::own_comm`], made once.
static OWN_COMM: OnceLock<Option<Handle>> = OnceLock::new();

/// Bytes that hold an `MPI_Status` of any MPI.
const STATUS_ROOM: usize = 256;

/// The MPI of the process.
pub struct Mpi {
    constants: Constants,
    ops: Vec<Handle>,
    rank: IntOfFn,
    size: IntOfFn,
    is_inter: IntOfFn,
    type_size: IntOfFn,
    extent: ExtentFn<Handle>,
    envelope: EnvelopeFn<Handle>,
    allgather: AllgatherFn,
    allreduce: AllreduceFn,
    reduce_local: ReduceLocalFn,
    iprobe: IprobeFn,
    pack: PackFn<Handle>,
    unpack: UnpackFn<Handle>,
    create_keyval: KeyvalFn,
    set_attr: SetAttrFn,
    get_attr: GetAttrFn,
    error: ErrorFn<Handle>,
    get_handler: GetHandlerFn,
    set_handler: SetHandlerFn,
    free_handler: OfHandleFn,
    split: SplitFn,
    free_comm: OfHandleFn,
    survival: Option<Survival>,
    abort: AbortFn,
    initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    finalized: unsafe extern "C" fn(*mut c_int) -> c_int,
}

/// The MPI, if it is a known MPI and multicast is wanted.
pub fn find() -> Option<&'static Mpi> {
    static FOUND: OnceLock<Option<Mpi>> = OnceLock::new();
    FOUND
        .get_or_init(|| crate::provider::is_wanted().then(look).flatten())
        .as_ref()
}

fn look() -> Option<Mpi> {
    let constants = abi::constants()?;
    // SAFETY: functions of these names have these types in every MPI; handles are passed in a
    // register, of which a callee with a smaller type reads only its part.
    unsafe {
        Some(Mpi {
            constants,
            ops: abi::ops(&constants),
            rank: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_rank")?),
            size: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_size")?),
            is_inter: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Comm_test_inter")?),
            type_size: transmute::<*mut c_void, IntOfFn>(function(c"PMPI_Type_size")?),
            extent: transmute::<*mut c_void, ExtentFn<Handle>>(function(c"PMPI_Type_get_extent")?),
            envelope: transmute::<*mut c_void, EnvelopeFn<Handle>>(function(
                c"PMPI_Type_get_envelope",
            )?),
            allgather: transmute::<*mut c_void, AllgatherFn>(function(c"PMPI_Allgather")?),
            allreduce: transmute::<*mut c_void, AllreduceFn>(function(c"PMPI_Allreduce")?),
            reduce_local: transmute::<*mut c_void, ReduceLocalFn>(function(c"PMPI_Reduce_local")?),
            iprobe: transmute::<*mut c_void, IprobeFn>(function(c"PMPI_Iprobe")?),
            pack: transmute::<*mut c_void, PackFn<Handle>>(function(c"PMPI_Pack")?),
            unpack: transmute::<*mut c_void, UnpackFn<Handle>>(function(c"PMPI_Unpack")?),
            create_keyval: transmute::<*mut c_void, KeyvalFn>(function(
                c"PMPI_Comm_create_keyval",
            )?),
            set_attr: transmute::<*mut c_void, SetAttrFn>(function(c"PMPI_Comm_set_attr")?),
            get_attr: transmute::<*mut c_void, GetAttrFn>(function(c"PMPI_Comm_get_attr")?),
            error: transmute::<*mut c_void, ErrorFn<Handle>>(function(
                c"PMPI_Comm_call_errhandler",
            )?),
            get_handler: transmute::<*mut c_void, GetHandlerFn>(function(
                c"PMPI_Comm_get_errhandler",
            )?),
            set_handler: transmute::<*mut c_void, SetHandlerFn>(function(
                c"PMPI_Comm_set_errhandler",
            )?),
            free_handler: transmute::<*mut c_void, OfHandleFn>(function(c"PMPI_Errhandler_free")?),
            split: transmute::<*mut c_void, SplitFn>(function(c"PMPI_Comm_split")?),
            free_comm: transmute::<*mut c_void, OfHandleFn>(function(c"PMPI_Comm_free")?),
            survival: Survival::find(),
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

/// The properties of a datatype that matter for a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Data bytes of one element.
    pub size: usize,
    /// Elements are contiguous and in order.
    pub is_plain: bool,
}

impl Mpi {
    /// Returns whether the MPI is Open MPI.
    pub fn is_open_mpi(&self) -> bool {
        !self.constants.ints && self.constants != MPI_5
    }

    /// Returns whether the MPI's own short collective calls are faster than an exchange by
    /// multicast.
    pub fn is_quick(&self) -> bool {
        self.constants.quick
    }

    /// Normalises a handle given by a caller.
    pub fn handle(&self, given: Handle) -> Handle {
        match self.constants.ints {
            true => given as u32 as Handle,
            false => given,
        }
    }

    /// Reads a handle from memory; `None` if `at` is null.
    ///
    /// # Safety
    /// `at` is null or points to a handle.
    pub unsafe fn read(&self, at: *const Handle) -> Option<Handle> {
        // SAFETY: the caller's promise; in MPIs with `int` handles an `int` is read.
        (!at.is_null()).then(|| unsafe {
            match self.constants.ints {
                true => *at.cast::<u32>() as Handle,
                false => *at,
            }
        })
    }

    /// The address of element `at` of an array of handles.
    ///
    /// # Safety
    /// The array has more than `at` elements.
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
        // SAFETY: all functions of this type write one int.
        (unsafe { function(of, &mut value) } == SUCCESS).then_some(value)
    }

    /// The rank and the number of ranks.
    pub fn rank_and_size(&self, comm: Handle) -> Option<(usize, usize)> {
        let rank = usize::try_from(self.int_of(self.rank, comm)?).ok()?;
        Some((rank, usize::try_from(self.int_of(self.size, comm)?).ok()?))
    }

    /// Returns whether the communicator is an intercommunicator.
    pub fn is_inter(&self, comm: Handle) -> Option<bool> {
        Some(self.int_of(self.is_inter, comm)? != 0)
    }

    /// The layout of a datatype; `None`: invalid, or its size exceeds an `int`.
    pub fn layout(&self, datatype: Handle) -> Option<Layout> {
        let size = usize::try_from(self.int_of(self.type_size, datatype)?).ok()?;
        let (mut lower, mut extent) = (0, 0);
        let [mut integers, mut addresses, mut types, mut combiner] = [0; 4];
        // SAFETY: these functions write exactly these values.
        let known = unsafe {
            (self.extent)(datatype, &mut lower, &mut extent) == SUCCESS
                && (self.envelope)(
                    datatype,
                    &mut integers,
                    &mut addresses,
                    &mut types,
                    &mut combiner,
                ) == SUCCESS
        };
        // A type without constituents is a predefined type.
        let own = integers == 0 && addresses == 0 && types == 0;
        known.then_some(Layout {
            size,
            is_plain: own && lower == 0 && extent as usize == size,
        })
    }

    /// Gathers `own` of all ranks; every rank passes the same number of bytes.
    pub fn gather(&self, comm: Handle, own: &[u8], ranks: usize) -> Option<Vec<u8>> {
        let len = c_int::try_from(own.len()).ok()?;
        let mut all = vec![0; own.len() * ranks];
        let byte = self.constants.byte;
        // SAFETY: `all` has room for the bytes of all ranks.
        let result = unsafe {
            let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            (self.allgather)(from, len, byte, to, len, byte, comm)
        };
        (result == SUCCESS).then_some(all)
    }

    /// The bitwise and of all ranks' values.
    pub fn agree(&self, comm: Handle, own: c_int) -> Option<c_int> {
        let how = self.constants.and;
        let mut all = 0;
        let int = self.constants.int;
        // SAFETY: one int each.
        let result = unsafe {
            let (from, to) = ((&raw const own).cast(), (&raw mut all).cast());
            (self.allreduce)(from, to, 1, int, how, comm)
        };
        (result == SUCCESS).then_some(all)
    }

    /// Agrees like [`Mpi::agree`]; if a rank dies meanwhile, all survivors get the same outcome,
    /// where the MPI can do that.
    pub fn agree_for_all(&self, comm: Handle, own: c_int) -> Agreement {
        let Some(survival) = &self.survival else {
            return match self.agree(comm, own) {
                Some(all) => Agreement::Reached(all),
                None => Agreement::Unknown,
            };
        };
        let mut all = own;
        // SAFETY: it reads and writes one int.
        match unsafe { (survival.agree)(comm, &mut all) } {
            SUCCESS => Agreement::Reached(all),
            _ => Agreement::Failed,
        }
    }

    /// Returns whether an operation is predefined.
    pub fn is_own_op(&self, op: Handle) -> bool {
        self.ops.contains(&op)
    }

    /// Returns whether a buffer is `MPI_IN_PLACE`.
    pub fn is_in_place(&self, buffer: *const c_void) -> bool {
        buffer == self.in_place().cast_const()
    }

    /// `MPI_IN_PLACE`.
    pub fn in_place(&self) -> *mut c_void {
        self.constants.in_place as *mut c_void
    }

    /// Reduces elements into others, which are the right operands. Returns the result of
    /// `MPI_Reduce_local`.
    ///
    /// # Safety
    /// As for `MPI_Reduce_local`.
    pub unsafe fn reduce_local(
        &self,
        from: *const c_void,
        (to, count, datatype): (*mut c_void, c_int, Handle),
        op: Handle,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.reduce_local)(from, to, count, datatype, op) }
    }

    /// `MPI_COMM_WORLD`; `None` before MPI is initialised and after it is finalised.
    pub fn world(&self) -> Option<Handle> {
        let (mut begun, mut over) = (0, 0);
        // SAFETY: both write one int, at any time.
        let known = unsafe {
            (self.initialized)(&mut begun) == SUCCESS && (self.finalized)(&mut over) == SUCCESS
        };
        (known && begun != 0 && over == 0).then_some(self.constants.world)
    }

    /// Lets the MPI make progress with the program's other operations. Returns their error. Done by
    /// a probe on this library's own communicator: an error on one of the program's would call that
    /// communicator's error handler.
    pub fn progress(&self) -> Result<(), c_int> {
        let mut flag = 0;
        let mut status = [0u64; STATUS_ROOM / 8];
        let own = self.own_comm().unwrap_or(self.constants.own);
        // SAFETY: a probe of a communicator of this process alone; there is room for the status.
        let code = unsafe {
            let status = status.as_mut_ptr().cast();
            (self.iprobe)(0, 0, own, &mut flag, status)
        };
        match code {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// The process's own communicator of this library.
    fn own_comm(&self) -> Option<Handle> {
        *OWN_COMM.get_or_init(|| self.same_ranks(self.constants.own, 0))
    }

    /// Frees this library's communicators, because MPI is about to be finalised.
    pub fn end(&self) {
        if let Some(Some(own)) = OWN_COMM.get() {
            self.free_comm(*own);
        }
    }

    /// Makes a communicator of the same ranks, unknown to the program, whose errors are returned.
    /// All ranks call this.
    pub fn same_ranks(&self, comm: Handle, rank: usize) -> Option<Handle> {
        let mut made: Handle = 0;
        // SAFETY: there is room for a handle.
        let result = unsafe { (self.split)(comm, 0, rank as c_int, &mut made) };
        let made = (result == SUCCESS).then(|| self.handle(made))?;
        self.set_handler(made, self.constants.handlers.returns);
        Some(made)
    }

    /// Frees the communicator, at this rank.
    pub fn free_comm(&self, mut comm: Handle) {
        // SAFETY: of `same_ranks`, freed once.
        let _ = unsafe { (self.free_comm)(&mut comm) };
    }

    /// Packs elements contiguously; `false`: the MPI refused.
    ///
    /// # Safety
    /// As for `MPI_Pack`.
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

    /// Unpacks the output of [`Mpi::pack`].
    ///
    /// # Safety
    /// As for `MPI_Unpack`.
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

    /// The MPI's own error handlers.
    pub fn handlers(&self) -> Handlers {
        self.constants.handlers
    }

    /// The error handler of a communicator, which [`Mpi::release_handler`] takes back.
    pub fn handler(&self, comm: Handle) -> Option<Handle> {
        let mut handler: Handle = 0;
        // SAFETY: there is room for a handle.
        let result = unsafe { (self.get_handler)(comm, &mut handler) };
        (result == SUCCESS).then(|| self.handle(handler))
    }

    /// Sets the error handler of a communicator, at this rank.
    pub fn set_handler(&self, comm: Handle, handler: Handle) {
        // SAFETY: a communicator and a handler that are there.
        let _ = unsafe { (self.set_handler)(comm, handler) };
    }

    /// Says if an error handler ends the job.
    pub fn ends_job(&self, handler: Handle) -> bool {
        [self.handlers().fatal, self.handlers().abort].contains(&handler)
    }

    /// Frees a handler that [`Mpi::handler`] gave, except the MPI's predefined ones.
    pub fn release_handler(&self, mut handler: Handle) {
        if !self.ends_job(handler) && handler != self.handlers().returns {
            // SAFETY: a handler with a reference of this library's, given back once.
            let _ = unsafe { (self.free_handler)(&mut handler) };
        }
    }

    /// Says if the MPI's own collective calls of a communicator fail from now on.
    pub fn is_broken(&self, comm: Handle) -> bool {
        self.survival.as_ref().is_some_and(|s| s.is_broken(comm))
    }

    /// A key for attributes of communicators.
    pub fn create_keyval(&self, copy: CopyFn, delete: DeleteFn) -> Option<c_int> {
        let mut key = 0;
        // SAFETY: two functions with static lifetime.
        let result = unsafe { (self.create_keyval)(copy, delete, &mut key, std::ptr::null_mut()) };
        (result == SUCCESS).then_some(key)
    }

    /// Stores an attribute with a communicator.
    pub fn set_attr(&self, comm: Handle, key: c_int, value: *mut c_void) -> bool {
        // SAFETY: the MPI stores the pointer without dereferencing it.
        unsafe { (self.set_attr)(comm, key, value) == SUCCESS }
    }

    /// The attribute of a communicator.
    pub fn attr(&self, comm: Handle, key: c_int) -> Option<*mut c_void> {
        let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: it writes a pointer and an int.
        let result = unsafe { (self.get_attr)(comm, key, (&raw mut value).cast(), &mut found) };
        (result == SUCCESS && found != 0).then_some(value)
    }

    /// Calls the communicator's error handler and returns the error code. `wrong`: the ranks
    /// disagree about a length or a root.
    pub fn fail(&self, comm: Handle, wrong: bool) -> c_int {
        self.fail_with(comm, self.code(wrong))
    }

    /// The error code for a dead rank.
    pub fn dead(&self) -> c_int {
        self.constants.dead
    }

    /// Like [`Mpi::fail`], for an error code of the MPI.
    pub fn fail_with(&self, comm: Handle, code: c_int) -> c_int {
        // SAFETY: the caller's communicator.
        unsafe { (self.error)(comm, code) };
        code
    }

    /// The error code alone.
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

    /// Aborts the job.
    pub fn abort(&self) {
        // SAFETY: `MPI_COMM_WORLD`, between MPI_Init and MPI_Finalize.
        let _ = self.world().map(|world| unsafe { (self.abort)(world, 1) });
    }
}
