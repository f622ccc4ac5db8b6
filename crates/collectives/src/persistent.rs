//! `MPI_Bcast_init`: persistent broadcasts (docs/design/collectives.md).
//!
//! The program's request is one of the MPI's: a persistent receive of zero bytes from the rank
//! itself, on a reserved communicator. Starting the request starts that receive and posts the
//! broadcast; when the broadcast has ended, the matching message is sent. So any MPI function can
//! wait for the request, together with any other requests.
//!
//! Ranks may start several requests in any order. So each request has its own communicator and
//! group, which are reused after the program has freed the request.

use crate::bcast::Bcast;
use crate::calls::{self, Call};
use crate::group::{self, Agreed, RANKS_MIN};
use crate::ibcast::{self, Asked, RequestState, Whom};
use crate::mpi::{self, Handle, Mpi, SUCCESS};
use crate::provider;
use crate::quiet::Quiet;
use crate::requests;
use crate::survival::Agreement;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

type RecvInitFn =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
pub type OfRequestFn = unsafe extern "C" fn(*mut Handle) -> c_int;
pub type InitFn =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle, Handle, *mut Handle) -> c_int;
pub type InitLongFn =
    unsafe extern "C" fn(*mut c_void, isize, Handle, c_int, Handle, Handle, *mut Handle) -> c_int;
type AsyncPollFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type AsyncStartFn = unsafe extern "C" fn(AsyncPollFn, *mut c_void, Handle) -> c_int;
type AsyncStateFn = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// `MPIX_STREAM_NULL`, `MPIX_ASYNC_NOPROGRESS` and `MPIX_ASYNC_DONE` of MPICH.
const NO_STREAM: Handle = 0x3c00_0000;
const ASYNC_NOTHING: c_int = 0;
const ASYNC_DONE: c_int = 1;

/// Most requests of one communicator with a group at a time.
const PER_COMM_MAX: usize = 8;
/// Most groups for requests in one process: each needs sockets, which communicators need too.
const SLOTS_MAX: usize = 16;
/// Bit of a rank's offer: the rank can make another group.
const MAY_MAKE: c_int = 1 << PER_COMM_MAX;

/// The MPI's functions for persistent broadcasts.
struct Functions {
    recv_init: RecvInitFn,
    start: OfRequestFn,
    /// MPICH's functions for callbacks on progress: MPICH calls them whenever it makes progress.
    watch: Option<(AsyncStartFn, AsyncStateFn)>,
}

/// The functions, if the MPI has all of them and calls back when it makes progress. `None`, too, if
/// a tool in front of this library defines `MPI_Start` and the like: requests that the tool starts
/// would never end.
fn find() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(look).as_ref()
}

fn look() -> Option<Functions> {
    let requests = requests::find()?;
    let function = mpi::function;
    let doors = [c"MPI_Start", c"MPI_Startall", c"MPI_Request_free"];
    if !doors.into_iter().all(mpi::is_own) {
        return None;
    }
    function(c"PMPI_Bcast_init")?;
    // SAFETY: functions of these names have these types in every MPI that has them.
    unsafe {
        let watch = match (
            function(c"PMPIX_Async_start"),
            function(c"MPIX_Async_get_state"),
        ) {
            (Some(start), Some(state)) => Some((
                transmute::<*mut c_void, AsyncStartFn>(start),
                transmute::<*mut c_void, AsyncStateFn>(state),
            )),
            _ => None,
        };
        (watch.is_some() || requests.is_hooked()).then_some(())?;
        Some(Functions {
            recv_init: transmute::<*mut c_void, RecvInitFn>(function(c"PMPI_Recv_init")?),
            start: transmute::<*mut c_void, OfRequestFn>(function(c"PMPI_Start")?),
            watch,
        })
    }
}

/// A group, which serves one request at a time.
struct Slot {
    /// The program's communicator; `None`: freed before the request.
    parent: Option<Handle>,
    comm: Handle,
    agreed: &'static Agreed,
    used: Option<Use>,
}

/// A live request of the program.
#[derive(Clone, Copy)]
struct Use {
    request: Handle,
    /// The arguments; the datatype is this library's duplicate if it has gaps.
    asked: Asked,
}

// SAFETY: the pointers are the user's memory and the MPI's handles, used as numbers here.
unsafe impl Send for Slot {}

/// All groups for requests; those of one communicator in the order in which all ranks made them.
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
/// Number of live requests; if it is 0, the list is not searched.
static USED: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, Vec<Slot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a request. Returns the result of `MPI_Bcast_init`; `None`: all ranks call the MPI's own.
///
/// # Safety
/// As for `MPI_Bcast_init`.
pub unsafe fn init(mpi: &Mpi, asked: &Bcast, request: *mut Handle) -> Option<c_int> {
    let asked = asked.of(mpi);
    let (count, len, is_plain) = asked.size(mpi)?;
    let (rank, ranks) = mpi.rank_and_size(asked.comm)?;
    let root = usize::try_from(asked.root).ok().filter(|r| *r < ranks)?;
    if ranks < RANKS_MIN || mpi.is_inter(asked.comm)? {
        return None;
    }
    let at = match place(mpi, asked.comm, rank) {
        Place::At(at) => at,
        Place::None => return None,
        Place::Dead => return Some(mpi.fail_with(asked.comm, mpi.dead())),
    };
    // All ranks use the group from here on, so a later failure must be reported.
    let (functions, requests) = (find()?, requests::find()?);
    let mut datatype = asked.datatype;
    if !is_plain {
        let Some(kept) = requests.keep_type(mpi, datatype) else {
            return Some(mpi.fail(asked.comm, false));
        };
        datatype = kept;
    }
    let me = rank as c_int;
    // SAFETY: zero bytes are received; the caller's promise for `request`.
    let made = unsafe { (functions.recv_init)(null_mut(), 0, mpi.byte(), me, 0, at, request) };
    // SAFETY: the handle was written if the request was made.
    let request = unsafe { mpi.read(request) }.filter(|_| made == SUCCESS);
    let Some(request) = request else {
        return Some(mpi.fail(asked.comm, false));
    };
    let asked = Asked {
        bcast: Bcast {
            datatype,
            comm: at,
            ..asked
        },
        count,
        len,
        root,
        is_plain,
    };
    let mut slots = lock();
    let slot = slots.iter_mut().find(|slot| slot.comm == at)?;
    slot.used = Some(Use { request, asked });
    USED.fetch_add(1, Ordering::Release);
    Some(SUCCESS)
}

/// The place of a request.
enum Place {
    /// The communicator of a group that is free at all ranks, or of a new group.
    At(Handle),
    /// No rank has a group for the request.
    None,
    /// A rank is dead: the call fails, even if all survivors know of the death. The MPI's own call
    /// might succeed at some survivors, which would then wait for the others.
    Dead,
}

/// Finds or makes a group for a request. All ranks call this.
fn place(mpi: &Mpi, comm: Handle, rank: usize) -> Place {
    if !calls::are_asked_for() {
        return Place::None;
    }
    let agreed = match group::agreed(mpi, comm) {
        Some(agreed) if agreed.is_dead() => return Place::Dead,
        Some(agreed) => agreed,
        None => return Place::None,
    };
    let is_carried = agreed.group_for(Call::Bcast).is_some();
    let able = is_carried && find().is_some() && provider::find().is_some();
    let handler = mpi.handler(comm);
    let place = {
        let _quiet = Quiet::of(mpi, comm);
        free_or_new(mpi, (comm, rank), able)
    };
    if let Some(handler) = handler {
        if let Place::At(at) = place {
            // The request belongs to the program, and so do its errors.
            mpi.set_handler(at, handler);
        }
        mpi.release_handler(handler);
    }
    place
}

fn free_or_new(mpi: &Mpi, (comm, rank): (Handle, usize), able: bool) -> Place {
    let free = match mpi.agree_for_all(comm, if able { yield_cpu(comm) } else { 0 }) {
        Agreement::Reached(free) => free,
        Agreement::Failed => return Place::Dead,
        Agreement::Unknown if able => return Place::Dead,
        Agreement::Unknown => return Place::None,
    };
    if let Some(nth) = (0..PER_COMM_MAX).find(|nth| free & 1 << nth != 0) {
        let of_comm = |slot: &&Slot| slot.parent == Some(comm);
        let slot = lock().iter().filter(of_comm).nth(nth).map(|s| s.comm);
        return slot.map_or(Place::None, Place::At);
    }
    match free & MAY_MAKE {
        0 => Place::None,
        _ => new(mpi, comm, rank),
    }
}

/// Makes a group for requests of a communicator.
fn new(mpi: &Mpi, comm: Handle, rank: usize) -> Place {
    let own = mpi.same_ranks(comm, rank);
    let made = mpi.agree_for_all(comm, -(own.is_some() as c_int));
    let own = match (own, made) {
        (Some(own), Agreement::Reached(-1)) => own,
        (own, made) => {
            let may_be_elsewhere = own.is_some() && made == Agreement::Unknown;
            own.into_iter().for_each(|own| mpi.free_comm(own));
            return match may_be_elsewhere || made == Agreement::Failed {
                true => Place::Dead,
                false => Place::None,
            };
        }
    };
    match group::agreed(mpi, own) {
        Some(agreed) if agreed.ahead().is_some() => {
            lock().push(Slot {
                parent: Some(comm),
                comm: own,
                agreed,
                used: None,
            });
            Place::At(own)
        }
        agreed => {
            let dead = agreed.is_some_and(Agreed::is_dead);
            group::end(mpi, own, ibcast::settle);
            mpi.free_comm(own);
            match dead {
                true => Place::Dead,
                false => Place::None,
            }
        }
    }
}

/// The offer of this rank: a mask of free groups of a communicator, and whether it can make
/// another.
fn yield_cpu(comm: Handle) -> c_int {
    let slots = lock();
    let of_comm = slots.iter().filter(|slot| slot.parent == Some(comm));
    let (mut bits, mut count) = (0, 0);
    for slot in of_comm {
        bits |= (slot.used.is_none() as c_int) << count;
        count += 1;
    }
    match count < PER_COMM_MAX && slots.len() < SLOTS_MAX {
        true => bits | MAY_MAKE,
        false => bits,
    }
}

/// Returns whether the program has any request of this library.
pub fn are_some() -> bool {
    USED.load(Ordering::Acquire) > 0
}

/// Returns whether a request is this library's.
fn is_own(request: Handle) -> bool {
    let is = |slot: &Slot| slot.used.is_some_and(|used| used.request == request);
    are_some() && lock().iter().any(is)
}

/// Starts a request. Returns the result of `MPI_Start`; `None`: not a request of this library.
///
/// # Safety
///
/// As for `MPI_Start`.
pub unsafe fn start(mpi: &Mpi, request: *mut Handle) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let handle = unsafe { mpi.read(request) }.filter(|handle| is_own(*handle))?;
    let (functions, requests) = (find()?, requests::find()?);
    let is = |slot: &Slot| slot.used.is_some_and(|used| used.request == handle);
    let (comm, agreed, used) = {
        let slots = lock();
        let slot = slots.iter().find(|slot| is(slot))?;
        (slot.comm, slot.agreed, slot.used?)
    };
    // SAFETY: the promise of `MPI_Start`'s caller.
    let Ok(packed) = (unsafe { ibcast::pack(mpi, agreed, &used.asked) }) else {
        return Some(mpi.fail(comm, true));
    };
    // SAFETY: a request of the MPI that the program declares inactive.
    let code = unsafe { (functions.start)(request) };
    // Open MPI may have replaced the request.
    // SAFETY: it is unchanged or written anew.
    let handle = unsafe { mpi.read(request)? };
    if let Some(Slot {
        used: Some(used), ..
    }) = lock().iter_mut().find(|slot| slot.comm == comm)
    {
        used.request = handle;
    }
    if code != SUCCESS {
        return Some(code);
    }
    let (shared, whom) = (
        RequestState::new(used.asked.len),
        Whom::Itself(comm, agreed.rank as c_int),
    );
    // SAFETY: the promise of `MPI_Start`'s caller.
    unsafe { ibcast::post(agreed, used.asked, packed, (whom, shared.clone())) };
    if requests.hook(ibcast::hook) {
        return Some(SUCCESS);
    }
    if let Some((start, _)) = functions.watch {
        let extra = Arc::into_raw(shared).cast_mut().cast();
        // SAFETY: `poll` takes `extra` back when it has ended.
        let _ = unsafe { start(poll, extra, NO_STREAM) };
    }
    Some(SUCCESS)
}

thread_local! {
    /// Set while this thread is in `poll`.
    static POLLS: Cell<bool> = const { Cell::new(false) };
}

/// Called when MPICH makes progress. Functions called from here may make progress too and call this
/// again; the nested call must not end requests because MPICH is iterating over its list.
unsafe extern "C" fn poll(thing: *mut c_void) -> c_int {
    let Some((_, state)) = find().and_then(|functions| functions.watch) else {
        return ASYNC_DONE;
    };
    // SAFETY: MPICH's object, with the pointer that `start` gave it.
    let shared = unsafe { state(thing) }.cast_const().cast::<RequestState>();
    if POLLS.replace(true) {
        return ASYNC_NOTHING;
    }
    if let Some(provider) = provider::find() {
        (provider.progress)();
    }
    ibcast::look();
    POLLS.set(false);
    // SAFETY: `start` gave it, and it is taken back once, after which this is not called again.
    unsafe {
        if !(*shared).is_over() {
            return ASYNC_NOTHING;
        }
        drop(Arc::from_raw(shared));
    }
    ASYNC_DONE
}

/// Starts several requests, foreign ones by `next`. `None`: all are foreign.
///
/// # Safety
/// As for `MPI_Startall`, with an `MPI_Start` as `next`.
pub unsafe fn start_all(
    mpi: &Mpi,
    count: c_int,
    requests: *mut Handle,
    next: impl Fn(*mut Handle) -> c_int,
) -> Option<c_int> {
    let count = usize::try_from(count).ok()?;
    // SAFETY: the caller's promise: `count` handles.
    let all = || (0..count).map(|at| unsafe { mpi.at(requests, at) });
    // SAFETY: as above.
    let is_own = |at: *mut Handle| unsafe { mpi.read(at) }.is_some_and(is_own);
    if !are_some() || !all().any(is_own) {
        return None;
    }
    for at in all() {
        // SAFETY: as above.
        let code = unsafe { start(mpi, at) }.unwrap_or_else(|| next(at));
        if code != SUCCESS {
            return Some(code);
        }
    }
    Some(SUCCESS)
}

/// Releases the group of a request that the MPI is about to free.
pub fn before_free(request: Handle) -> Option<()> {
    let is = |used: &mut Use| used.request == request;
    let used = lock()
        .iter_mut()
        .find_map(|slot| slot.used.take_if(|used| is(used)))?;
    USED.fetch_sub(1, Ordering::Release);
    if !used.asked.is_plain {
        requests::find()?.free_type(used.asked.bcast.datatype);
    }
    Some(())
}

/// Handles a communicator that is about to be freed: frees the groups whose requests this rank has
/// freed. The ranks do so independently, since a rank may be dead. Ranks that still miss chunks of
/// such a group get them from its closed members, and no rank starts a request that another rank
/// has freed.
pub fn end(mpi: &Mpi, comm: Handle) {
    let mut going = Vec::new();
    lock().retain_mut(|slot| {
        if slot.parent != Some(comm) {
            return true;
        }
        slot.parent = None;
        let goes = slot.used.is_none();
        going.extend(goes.then_some(slot.comm));
        !goes
    });
    for own in going {
        group::end(mpi, own, ibcast::settle);
        mpi.free_comm(own);
    }
}
