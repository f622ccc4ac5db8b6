//! The agreement of a communicator, stored as its attribute: the group, its creation and its end
//! (`agreement` has the protocol by which ranks agree).

use crate::agreement::{self, Outcome};
use crate::calls::{self, Call};
use crate::mpi::{Handle, Mpi};
use crate::provider::{self, Provider};
use crate::wait::{Around, Stop, Wait};
use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Least number of ranks; with fewer a broadcast is a single message.
pub const RANKS_MIN: usize = 3;
/// Longest time for which the end of a group waits for broadcasts in progress. Broadcasts that take
/// longer do not reach members that have left.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Calls after which an agreement pays off.
const CALLS_BEFORE: usize = 1_000;

/// Broadcasts of sufficient length on a communicator after which multicast begins, if the user did
/// not request it; then the numbers of ranks for which it does, each on its own host
/// (docs/design/collectives.md).
const BCASTS_BEFORE: usize = 100;
/// Least length for [`BCASTS_BEFORE`], in bytes.
const LONG_MIN: usize = 16 << 10;
/// Numbers of ranks for [`BCASTS_BEFORE`].
const UNASKED_RANKS: RangeInclusive<usize> = 4..=64;

/// The agreement stored with a communicator.
pub struct Agreed {
    comm: Handle,
    pub ranks: usize,
    pub rank: usize,
    /// The group's number; `None`: broadcasts go point to point from now on.
    group: Mutex<Option<isize>>,
    /// The group was closed in the middle of a call.
    given_up: AtomicBool,
    /// The calls that the group carries, as bits.
    calls: c_int,
    /// The group of nonblocking broadcasts, and the reserved communicator for those that the group
    /// refuses; `None`: nonblocking broadcasts go point to point.
    ahead: Option<(isize, Handle)>,
    /// Some rank's error handler did not end the job when the ranks agreed.
    pub handled: bool,
}

impl Agreed {
    /// The group while it is in use.
    pub fn group(&self) -> Option<isize> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the group carries this call.
    pub fn does(&self, call: Call) -> bool {
        self.calls & call.bit() != 0
    }

    /// The group while it is in use, if it carries this call.
    pub fn group_for(&self, call: Call) -> Option<isize> {
        self.group().filter(|_| self.does(call))
    }

    /// The group of nonblocking broadcasts, and the communicator for those that the group refuses.
    pub fn ahead(&self) -> Option<(isize, Handle)> {
        let given_up = self.given_up.load(Ordering::Acquire);
        let (group, spare) = self.ahead?;
        Some((if given_up { NO_GROUP } else { group }, spare))
    }

    /// The communicator.
    pub fn comm(&self) -> Handle {
        self.comm
    }

    /// Waits for a broadcast of the group and returns its end. Gives the group up if the MPI fails.
    pub fn wait_for<A: Around>(
        &self,
        provider: &Provider,
        wait: &mut Wait<A>,
        (group, op): (isize, isize),
    ) -> Result<isize, Stop> {
        loop {
            match (provider.test)(group, op) {
                0 => wait.look().inspect_err(|stop| {
                    self.give_up(matches!(stop, Stop::Code(_)));
                    // Another group may get the number.
                    GIVEN_UP.get().into_iter().for_each(|settle| settle());
                })?,
                end => return Ok(end),
            }
        }
    }

    /// True if a rank died during the agreement, or the MPI failed: calls fail.
    pub fn is_dead(&self) -> bool {
        self.group() == Some(NO_GROUP)
    }

    /// Closes the group at this rank if it is in use: broadcasts in progress end, and their memory
    /// is no longer used. Later calls fail, or (unless `fails`) go to the MPI, which then fails by
    /// itself.
    pub fn give_up(&self, fails: bool) {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let next = fails.then_some(NO_GROUP);
        let old = std::mem::replace(&mut *group, next);
        self.given_up.store(true, Ordering::Release);
        drop(group);
        let closed = old.or(self.ahead.map(|(group, _)| group));
        lock_left().retain(|&left| Some(left) != closed);
        if let (Some(provider), Some(group)) = (provider::find(), closed) {
            (provider.close)(group);
        }
    }

    /// Stops using the group; broadcasts in progress go on until their end.
    pub fn leave(&self) {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        lock_left().extend(group.take());
    }
}

/// Called when this rank has given up a group and its nonblocking broadcasts have ended.
static GIVEN_UP: OnceLock<fn()> = OnceLock::new();

/// Registers the function that is called when a group was given up; there is only one.
pub fn when_given_up(settle: fn()) {
    GIVEN_UP.get_or_init(|| settle);
}

/// A number that no group has: posting to it fails.
const NO_GROUP: isize = -1;

/// Groups that this rank has left but not closed: other members may still ask for chunks.
static LEFT: Mutex<Vec<isize>> = Mutex::new(Vec::new());
/// Addresses of the attributes of live communicators.
static ALIVE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn lock_left() -> std::sync::MutexGuard<'static, Vec<isize>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_alive() -> std::sync::MutexGuard<'static, Vec<usize>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of the attribute.
fn key(mpi: &Mpi) -> Option<c_int> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    *KEY.get_or_init(|| mpi.create_keyval(copy, delete))
}

/// The key of the attribute that counts calls before an agreement.
fn count_key(mpi: &Mpi) -> Option<c_int> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    *KEY.get_or_init(|| mpi.create_keyval(copy, delete))
}

/// A duplicate of a communicator makes its own agreement.
unsafe extern "C" fn copy(
    _: Handle,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the MPI's flag.
    unsafe { *flag = 0 };
    crate::mpi::SUCCESS
}

unsafe extern "C" fn delete(_: Handle, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    let mut alive = lock_alive();
    if let Some(at) = alive.iter().position(|&known| known == value as usize) {
        alive.swap_remove(at);
        drop(alive);
        // SAFETY: made by `Box::into_raw` in `agree`, and known until now.
        let agreed = unsafe { Box::from_raw(value.cast::<Agreed>()) };
        agreed.leave();
    }
    crate::mpi::SUCCESS
}

/// The agreement of a communicator. On the first call the ranks agree, so all of them must call
/// this in the same broadcast.
pub fn agreed(mpi: &Mpi, comm: Handle) -> Option<&'static Agreed> {
    known(mpi, comm).or_else(|| {
        let value = agree(mpi, comm, key(mpi)?)?;
        // SAFETY: as in `known`.
        Some(unsafe { &*value.cast::<Agreed>() })
    })
}

/// The agreement of a communicator, for a broadcast of `len` bytes.
pub fn for_bcast(mpi: &Mpi, comm: Handle, len: usize) -> Option<&'static Agreed> {
    match calls::are_asked_for() {
        true => agreed(mpi, comm),
        false if pays(len) => counted(mpi, comm, UNASKED_RANKS, BCASTS_BEFORE),
        false => None,
    }
}

/// Returns whether broadcasts of this length may use a group.
pub fn pays(len: usize) -> bool {
    calls::are_asked_for() || len >= LONG_MIN
}

/// The agreement of a communicator, made after enough calls that it pays off; all ranks count
/// alike. `None`, too, if the caller cannot use a group of this number of ranks.
pub fn in_time(mpi: &Mpi, comm: Handle, ranks: RangeInclusive<usize>) -> Option<&'static Agreed> {
    counted(mpi, comm, ranks, CALLS_BEFORE)
}

/// The agreement, if one exists or this is at least call number `before`.
fn counted(
    mpi: &Mpi,
    comm: Handle,
    ranks: RangeInclusive<usize>,
    before: usize,
) -> Option<&'static Agreed> {
    if let Some(agreed) = known(mpi, comm) {
        return ranks.contains(&agreed.ranks).then_some(agreed);
    }
    if !ranks.contains(&mpi.rank_and_size(comm)?.1) {
        return None;
    }
    let key = count_key(mpi)?;
    let count = mpi.attr(comm, key).map_or(0, |count| count as usize) + 1;
    if count < before {
        mpi.set_attr(comm, key, count as *mut c_void);
        return None;
    }
    agreed(mpi, comm)
}

/// The existing agreement of a communicator.
pub fn known(mpi: &Mpi, comm: Handle) -> Option<&'static Agreed> {
    let value = mpi.attr(comm, key(mpi)?)?;
    // SAFETY: a box that lives until the communicator is freed, which no rank does during a
    // broadcast.
    Some(unsafe { &*value.cast::<Agreed>() })
}

fn agree(mpi: &Mpi, comm: Handle, key: c_int) -> Option<*mut c_void> {
    let (rank, ranks) = mpi.rank_and_size(comm)?;
    let outcome = match mpi.is_inter(comm)? || ranks < RANKS_MIN {
        true => Outcome::None,
        false => agreement::reach(mpi, comm, (rank, ranks)),
    };
    let (group, calls, ahead, handled) = match outcome {
        Outcome::None => (None, 0, None, false),
        Outcome::Dead => (Some(NO_GROUP), c_int::MAX, None, true),
        Outcome::Group {
            group,
            calls,
            spare,
            handled,
        } => (
            Some(group),
            calls,
            spare.map(|spare| (group, spare)),
            handled,
        ),
    };
    let agreed = Box::new(Agreed {
        comm,
        ranks,
        rank,
        group: Mutex::new(group),
        given_up: AtomicBool::new(false),
        calls,
        ahead,
        handled,
    });
    let value: *mut c_void = Box::into_raw(agreed).cast();
    lock_alive().push(value as usize);
    mpi.set_attr(comm, key, value).then_some(value)
}

/// Closes the group of a communicator that is about to be freed, without waiting for the other
/// ranks: waiting for a lost rank would cause an error of the program. Calls `settle` when this
/// rank has no broadcast in progress.
pub fn end(mpi: &Mpi, comm: Handle, settle: fn()) {
    let Some(agreed) = known(mpi, comm) else {
        return;
    };
    if let Some((group, spare)) = agreed.ahead() {
        drain(mpi, &[group]);
        settle();
        mpi.free_comm(spare);
    }
    let Some(group) = agreed.group() else {
        return;
    };
    agreed.leave();
    lock_left().retain(|&left| left != group);
    if let Some(provider) = provider::find() {
        (provider.close)(group);
    }
}

/// Before MPI is finalised: waits until this rank's broadcasts have arrived, but no longer than
/// necessary for other ranks (see [`end`]). A rank whose acknowledgement was lost has closed its
/// endpoint, which the provider reports to the others.
pub fn end_all(mpi: &Mpi) {
    if mpi.world().is_none() {
        return;
    }
    let mut groups = lock_left().clone();
    for &value in lock_alive().iter() {
        // SAFETY: belongs to a communicator that is not freed; MPI is finalised by one thread.
        let agreed = unsafe { &*(value as *const Agreed) };
        groups.extend(agreed.group());
    }
    drain(mpi, &groups);
    mpi.end();
}

/// Gives up the groups of nonblocking broadcasts whose communicator's own collective calls fail.
/// The caller then checks these broadcasts.
pub fn give_up_broken(mpi: &Mpi) {
    for &value in lock_alive().iter() {
        // SAFETY: of a communicator that is not freed, as its attribute is not deleted.
        let agreed = unsafe { &*(value as *const Agreed) };
        let given_up = agreed.given_up.load(Ordering::Acquire);
        if agreed.ahead.is_some() && !given_up && mpi.is_broken(agreed.comm) {
            agreed.give_up(false);
        }
    }
}

fn drain(mpi: &Mpi, groups: &[isize]) {
    let Some(provider) = provider::find() else {
        return;
    };
    let begun = Instant::now();
    let is_idle = |group: &isize| (provider.is_idle)(*group) != 0;
    while !groups.iter().all(is_idle) && begun.elapsed() < DRAIN_TIME {
        (provider.progress)();
        let _ = mpi.progress();
    }
}
