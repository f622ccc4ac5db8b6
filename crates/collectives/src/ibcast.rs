//! `MPI_Ibcast`: nonblocking broadcasts.
//!
//! A broadcast that the group cannot do because the network stopped carrying multicast becomes an
//! `MPI_Ibcast` of the MPI on a reserved communicator of the same ranks. There all ranks begin
//! these broadcasts in the group's order, even if they notice at different times.

use crate::bcast::Bcast;
use crate::calls::Call;
use crate::group::{self, Agreed};
use crate::mpi::{self, Handle, Mpi, SUCCESS};
use crate::provider::{self, Provider, ENDED_NOT_CARRIED, ENDED_WELL};
use crate::requests::{self, Calls, Requests};
use crate::wait::{Stop, Wait};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// State shared by a request and its broadcast.
pub struct RequestState {
    len: usize,
    /// MPI result code; valid once `ended` is set.
    code: AtomicI32,
    ended: AtomicBool,
}

impl RequestState {
    /// The state of a broadcast of `len` bytes.
    pub fn new(len: usize) -> Arc<RequestState> {
        let (code, ended) = (AtomicI32::new(SUCCESS), AtomicBool::new(false));
        Arc::new(RequestState { len, code, ended })
    }

    /// Returns whether the broadcast has ended.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The arguments of a broadcast and values derived from them.
#[derive(Clone, Copy)]
pub struct Asked {
    pub bcast: Bcast,
    pub count: c_int,
    pub len: usize,
    pub root: usize,
    pub is_plain: bool,
}

/// The packed bytes of a broadcast, and whether to unpack them at the end.
pub type Packed = (Vec<u8>, bool);

/// The request that a broadcast ends.
#[derive(Clone, Copy)]
pub enum Whom {
    /// A generalized request.
    Made(Handle),
    /// A receive from this rank itself, on a communicator: see `persistent`.
    Itself(Handle, c_int),
}

enum State {
    /// Done by the group.
    Group,
    /// Done by the MPI with this request.
    Mpi(Handle),
}

/// An unfinished broadcast.
struct Pending {
    shared: Arc<RequestState>,
    whom: Whom,
    group: isize,
    op: isize,
    state: State,
    /// The group's result code; 0: unfinished.
    end: isize,
    asked: Bcast,
    /// The reserved communicator for broadcasts that the group does not do.
    spare: Handle,
    /// This rank, and the number of ranks.
    who: (usize, usize),
    /// The packed bytes, for a datatype with gaps.
    packed: Option<Packed>,
}

// SAFETY: the pointers are the user's memory and the MPI's handles, used by the thread that makes
// progress, one at a time (`PENDING`).
unsafe impl Send for Pending {}

/// All unfinished broadcasts, in starting order.
static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());
/// Polls between questions to the MPI whether the communicators of pending broadcasts still
/// succeed.
const LOOKS_BROKEN: u32 = 1_024;
/// True while broadcasts are pending.
static SOME: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Vec<Pending>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

const CALLS: Calls = Calls {
    query,
    free,
    poll,
    wait,
    hook,
};

/// Begins a broadcast by multicast. Returns the result of `MPI_Ibcast`; `None`: all ranks call the
/// MPI's own.
///
/// # Safety
/// As for `MPI_Ibcast`.
pub unsafe fn begin(mpi: &Mpi, asked: &Bcast, request: *mut Handle) -> Option<c_int> {
    let requests = requests::find()?;
    provider::find()?;
    let bcast = asked.of(mpi);
    let (count, len, is_plain) = bcast.size(mpi)?;
    let agreed = group::known(mpi, bcast.comm).filter(|_| group::pays(len))?;
    agreed.ahead()?;
    // The MPI would report errors of such requests to the error handler of `MPI_COMM_WORLD`, not of
    // this communicator.
    if !agreed.does(Call::Bcast) || agreed.handled {
        return None;
    }
    // An invalid root is reported by the MPI.
    let root = usize::try_from(bcast.root)
        .ok()
        .filter(|r| *r < agreed.ranks)?;
    let mut asked = Asked {
        bcast,
        count,
        len,
        root,
        is_plain,
    };
    // SAFETY: the caller's promise.
    let Ok(packed) = (unsafe { pack(mpi, agreed, &asked) }) else {
        return Some(mpi.fail(bcast.comm, true));
    };
    if !is_plain {
        // The other ranks use the group, so a failure from here on must be reported.
        let Some(kept) = requests.keep_type(mpi, bcast.datatype) else {
            return Some(mpi.fail(bcast.comm, false));
        };
        asked.bcast.datatype = kept;
    }
    let shared = RequestState::new(len);
    let state = Arc::into_raw(shared.clone()).cast_mut().cast();
    // SAFETY: the caller's promise for `request`; `free` takes `state` back.
    if !unsafe { requests.start(&CALLS, state, request) } {
        return Some(mpi.fail(bcast.comm, false));
    }
    // SAFETY: `start` wrote it.
    let whom = Whom::Made(unsafe { mpi.read(request)? });
    // SAFETY: the caller's promise.
    unsafe { post(agreed, asked, packed, (whom, shared)) };
    Some(SUCCESS)
}

/// Packs the bytes of a datatype with gaps on the root, and allocates them on other ranks.
///
/// # Safety
/// As for `MPI_Ibcast`.
pub unsafe fn pack(mpi: &Mpi, agreed: &Agreed, asked: &Asked) -> Result<Option<Packed>, ()> {
    if asked.is_plain {
        return Ok(None);
    }
    let mut bytes = vec![0; asked.len];
    let sends = asked.root == agreed.rank;
    let Bcast {
        buffer,
        datatype,
        comm,
        ..
    } = asked.bcast;
    let elements = (buffer.cast_const(), asked.count, datatype);
    // SAFETY: the caller's promise.
    match sends && !unsafe { mpi.pack(elements, &mut bytes, comm) } {
        true => Err(()),
        false => Ok(Some((bytes, !sends))),
    }
}

/// Posts a broadcast to the group for nonblocking ones in `agreed`.
///
/// # Safety
/// The buffer must stay valid until `shared` has ended.
pub unsafe fn post(
    agreed: &Agreed,
    asked: Asked,
    mut packed: Option<Packed>,
    (whom, shared): (Whom, Arc<RequestState>),
) {
    let (group, spare) = agreed.ahead().unwrap_or((-1, 0));
    let base = match &mut packed {
        Some((bytes, _)) => bytes.as_mut_ptr().cast(),
        None => asked.bcast.buffer,
    };
    // Locked before posting: no other thread may look at the pending list in between.
    let mut pending = lock();
    let op = provider::find().and_then(|provider| {
        // SAFETY: the caller's promise, or `packed`, which lives as long as the broadcast.
        unsafe { provider.post(group, asked.root, base, asked.len) }
    });
    group::when_given_up(settle_if_free);
    pending.push(Pending {
        shared,
        whom,
        group,
        op: op.unwrap_or(-1),
        state: State::Group,
        end: 0,
        asked: asked.bcast,
        spare,
        who: (agreed.rank, agreed.ranks),
        packed,
    });
    SOME.store(true, Ordering::Release);
}

/// Ends the broadcasts that are finished.
fn advance(pending: &mut Vec<Pending>, mpi: &Mpi, requests: &Requests, provider: &Provider) {
    // A broadcast that the group refused is repeated by the MPI only after all earlier broadcasts
    // of its group have ended here, so that all ranks repeat them in the same order.
    let mut waiting: Vec<isize> = Vec::new();
    pending.retain_mut(|one| {
        let code = one.look(mpi, requests, provider, &waiting);
        if code.is_none() && matches!(one.state, State::Group) {
            waiting.push(one.group);
        }
        if let Some(code) = code {
            one.shared.code.store(code, Ordering::Relaxed);
            one.shared.ended.store(true, Ordering::Release);
            match one.whom {
                Whom::Made(request) => {
                    if one.packed.is_some() {
                        requests.free_type(one.asked.datatype);
                    }
                    requests.complete(request);
                }
                Whom::Itself(comm, rank) => requests.end(mpi, (comm, rank), code),
            }
        }
        code.is_none()
    });
    SOME.store(!pending.is_empty(), Ordering::Release);
}

impl Pending {
    /// Checks whether the broadcast has ended. Returns the result code if it has.
    fn look(
        &mut self,
        mpi: &Mpi,
        requests: &Requests,
        provider: &Provider,
        waiting: &[isize],
    ) -> Option<c_int> {
        if let State::Mpi(request) = &mut self.state {
            return requests.test(request);
        }
        if self.end == 0 {
            self.end = (provider.test)(self.group, self.op);
        }
        let Bcast {
            buffer,
            datatype,
            root,
            comm,
            ..
        } = self.asked;
        let count = self.asked.count as c_int;
        match (self.end, &self.packed) {
            (0, _) => None,
            (ENDED_WELL, Some((bytes, true))) => {
                // SAFETY: the promise of `MPI_Ibcast`'s caller, whose buffer stays valid until this
                // ends.
                let well = unsafe { mpi.unpack(bytes, (buffer, count, datatype), comm) };
                Some(if well { SUCCESS } else { mpi.code(true) })
            }
            (ENDED_WELL, _) => Some(SUCCESS),
            (ENDED_NOT_CARRIED, _) if waiting.contains(&self.group) => None,
            (ENDED_NOT_CARRIED, _) => {
                // SAFETY: as above.
                let begun = unsafe { requests.ibcast((buffer, count, datatype), root, self.spare) };
                match begun {
                    Ok(request) => {
                        self.state = State::Mpi(request);
                        None
                    }
                    Err(code) => Some(code),
                }
            }
            (end, _) => {
                crate::bcast::report_death(end, self.who);
                Some(match end {
                    provider::ENDED_MISMATCH => mpi.code(true),
                    _ => mpi.dead(),
                })
            }
        }
    }
}

/// Checks all pending broadcasts, unless another thread is doing so. Returns the number that ended.
pub fn look() -> c_int {
    if !SOME.load(Ordering::Acquire) {
        return 0;
    }
    let (Some(mpi), Some(requests), Some(provider)) =
        (mpi::find(), requests::find(), provider::find())
    else {
        return 0;
    };
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    if LOOKS.fetch_add(1, Ordering::Relaxed) % LOOKS_BROKEN == 0 {
        group::give_up_broken(mpi);
    }
    look_if_free(mpi, requests, provider)
}

fn look_if_free(mpi: &Mpi, requests: &Requests, provider: &Provider) -> c_int {
    let mut pending = match PENDING.try_lock() {
        Ok(pending) => pending,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return 0,
    };
    let before = pending.len();
    advance(&mut pending, mpi, requests, provider);
    (before - pending.len()) as c_int
}

/// A group was given up.
fn settle_if_free() {
    if let (Some(mpi), Some(requests), Some(provider)) =
        (mpi::find(), requests::find(), provider::find())
    {
        look_if_free(mpi, requests, provider);
    }
}

/// Completes the requests of ended broadcasts, before the group of a communicator is closed with
/// none in progress.
pub fn settle() {
    if let (Some(mpi), Some(requests), Some(provider)) =
        (mpi::find(), requests::find(), provider::find())
    {
        advance(&mut lock(), mpi, requests, provider);
    }
}

/// # Safety
///
/// `state` is from `begin`, and was not passed to `free`.
unsafe fn request_state<'a>(state: *mut c_void) -> &'a RequestState {
    // SAFETY: the caller's promise.
    unsafe { &*state.cast_const().cast::<RequestState>() }
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut c_void) -> c_int {
    if let (Some(mpi), Some(requests)) = (mpi::find(), requests::find()) {
        // SAFETY: the MPI's status.
        unsafe { requests.fill(mpi, status) };
    }
    // SAFETY: the MPI passes the pointer that `begin` gave it.
    unsafe { request_state(state) }.code.load(Ordering::Relaxed)
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the MPI calls this once for the pointer that `begin` gave it.
    drop(unsafe { Arc::from_raw(state.cast_const().cast::<RequestState>()) });
    SUCCESS
}

unsafe extern "C" fn poll(_: *mut c_void, _: *mut c_void) -> c_int {
    if let Some(provider) = provider::find() {
        (provider.progress)();
    }
    look();
    SUCCESS
}

unsafe extern "C" fn wait(count: c_int, states: *mut *mut c_void, _: f64, _: *mut c_void) -> c_int {
    let (Some(mpi), Some(provider)) = (mpi::find(), provider::find()) else {
        return SUCCESS;
    };
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `count` states, which `begin` gave.
        let state = unsafe { request_state(*states.add(at)) };
        let mut wait = Wait::new((mpi, provider, None), state.len);
        loop {
            look();
            if state.ended.load(Ordering::Acquire) {
                break;
            }
            if let Err(Stop::Code(code)) = wait.look() {
                return code;
            }
        }
    }
    SUCCESS
}

/// Called when the MPI makes progress.
///
/// # Safety
/// As for any call from C.
pub unsafe extern "C" fn hook() -> c_int {
    look()
}
