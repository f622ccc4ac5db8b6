//! The agreement of a communicator's ranks at its first use, on whether it has a group, over which
//! networks and for which calls. It is stored as an attribute of the communicator.

use crate::calls::{self, Call};
use crate::mpi::{Handle, Mpi};
use crate::provider::{self, Provider};
use crate::requests;
use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Least number of ranks; with fewer a broadcast is a single message.
pub const RANKS_MIN: usize = 3;
/// Time in which a network that carries multicast delivers a probe. The whole agreement takes at
/// most 100 ms.
const PROBE_TIME: Duration = Duration::from_millis(80);
/// Most that one poll counts. A poll takes microseconds; a longer one lost its processor, and the
/// other ranks may be as oversubscribed, and silent for that reason alone.
const LOOK_TIME: Duration = Duration::from_millis(1);
/// Longest duration nevertheless: on hosts this oversubscribed a network cannot be measured
/// (docs/design/collectives.md).
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);
/// Least number of probes of each rank, as any packet may be lost.
const PROBES_MIN: u32 = 4;
/// Pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(2);
/// Longest wait at the end of a group for broadcasts in flight. What takes longer is lost to
/// members that have already left.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Calls after which an agreement has paid for itself.
const CALLS_BEFORE: usize = 1_000;

/// If the user did not request multicast, it begins after this many sufficiently long broadcasts of
/// a communicator, with the following numbers of ranks, each on its own host
/// (docs/design/collectives.md).
const BCASTS_BEFORE: usize = 100;
/// Least length for [`BCASTS_BEFORE`], in bytes.
const LONG_MIN: usize = 16 << 10;
/// Numbers of ranks for [`BCASTS_BEFORE`].
const UNASKED_RANKS: RangeInclusive<usize> = 4..=64;

/// The agreement stored with a communicator.
pub struct Agreed {
    pub ranks: usize,
    pub rank: usize,
    /// The group's number; `None`: broadcasts permanently go another way.
    group: Mutex<Option<isize>>,
    /// Bit mask of the calls that the group does.
    calls: c_int,
    /// The group of nonblocking broadcasts, and the reserved communicator for those that it does
    /// not do; `None`: they go another way.
    pub ahead: Option<(isize, Handle)>,
}

impl Agreed {
    /// The group while it is in use.
    pub fn group(&self) -> Option<isize> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the group does this call.
    pub fn does(&self, call: Call) -> bool {
        self.calls & call.bit() != 0
    }

    /// The group while it is in use, if it does this call.
    pub fn group_for(&self, call: Call) -> Option<isize> {
        self.group().filter(|_| self.does(call))
    }

    /// Stops using the group; broadcasts in flight continue.
    pub fn leave(&self) {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        lock_left().extend(group.take());
    }
}

/// Groups that are left but not closed: other members may still need their retained chunks.
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

/// The agreement of a communicator. The first call must be made by all its ranks in the same
/// broadcast.
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

/// The agreement of a communicator, made once its calls are so many that it pays; all ranks count
/// alike. `None` also if the caller cannot use a group of this number of ranks.
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
    let group = match mpi.is_inter(comm)? || ranks < RANKS_MIN {
        true => None,
        false => make(mpi, comm, (rank, ranks)),
    };
    let (group, calls) = group.map_or((None, 0), |(group, calls)| (Some(group), calls));
    let ahead = group.and_then(|group| ahead(mpi, comm, (group, rank)));
    let agreed = Box::new(Agreed {
        ranks,
        rank,
        group: Mutex::new(group),
        calls,
        ahead,
    });
    let value: *mut c_void = Box::into_raw(agreed).cast();
    lock_alive().push(value as usize);
    mpi.set_attr(comm, key, value).then_some(value)
}

/// The group and the communicator for nonblocking broadcasts, if all ranks support them.
fn ahead(mpi: &Mpi, comm: Handle, (group, rank): (isize, usize)) -> Option<(isize, Handle)> {
    let requests = requests::find();
    let all = mpi.agree(comm, requests.is_some() as c_int)?;
    let spare = requests.filter(|_| all != 0)?;
    Some((group, spare.same_ranks(mpi, comm, rank)?))
}

/// Makes the group of a communicator and probes whether the network carries it, with the same
/// result on all ranks. Returns the group's number and the mask of its calls.
fn make(mpi: &Mpi, comm: Handle, (rank, ranks): (usize, usize)) -> Option<(isize, c_int)> {
    let provider = provider::find();
    // A rank without a provider takes part in the agreement with a descriptor length of 0.
    let card_len = mpi.agree_least(comm, provider.map_or(0, |p| p.card_len as c_int))?;
    let provider = provider.filter(|p| p.card_len as c_int == card_len)?;
    let mut own = vec![0; IDENTITY_LEN];
    let random = fill_random(&mut own[..HOST_AT]);
    own[HOST_AT..].copy_from_slice(&host().to_le_bytes());
    own.extend(
        provider
            .card()
            .unwrap_or_else(|| vec![0; card_len as usize]),
    );
    let all = mpi.gather(comm, &own, ranks)?;
    let offers: Vec<&[u8]> = all.chunks(own.len()).collect();
    if !calls::are_asked_for() && share_hosts(&offers) {
        return None;
    }
    let cards: Vec<u8> = offers
        .iter()
        .flat_map(|o| &o[IDENTITY_LEN..])
        .copied()
        .collect();
    let complete = random
        && offers
            .iter()
            .all(|o| o[IDENTITY_LEN..].iter().any(|b| *b != 0));
    let identity = identity(offers.first()?);
    let group = complete
        .then(|| provider.open(identity, rank, &cards))
        .flatten();
    // All ranks have joined.
    let networks = match mpi.agree(comm, -(group.is_some() as c_int))? {
        0 => 0,
        _ => probe(provider, group?),
    };
    let [networks, calls, ..] = mpi
        .agree(comm, networks | calls::wanted() << CALLS_SHIFT)?
        .to_le_bytes();
    if let (Some(group), 1..) = (group, networks) {
        (provider.start)(group, networks);
        let narrow = (provider.narrow)(group);
        if narrow > 0 && !calls::are_asked_for() {
            // All ranks know all receive buffers and decide alike.
            (provider.close)(group);
            return None;
        }
        warn_of_window(mpi, narrow);
        return Some((group, calls_of(&offers, calls as c_int)));
    }
    if rank == 0 && calls::are_asked_for() {
        crate::guard::say(&format!(
            "the network does not carry multicast between {ranks} ranks: all of theirs goes \
             point to point"
        ));
    }
    if let Some(group) = group {
        (provider.close)(group);
    }
    None
}

/// Rank 0 of all warns the user, once, that long broadcasts are slow because roots may have only
/// `bytes` bytes in flight. 0: no limit.
fn warn_of_window(mpi: &Mpi, bytes: isize) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let first = || mpi.world().and_then(|world| mpi.rank_and_size(world));
    let tells = bytes > 0 && first().is_some_and(|(rank, _)| rank == 0);
    if tells && !WARNED.swap(true, Ordering::Relaxed) {
        let kib = bytes >> 10;
        crate::guard::say(&format!(
            "long broadcasts by multicast are slow: {kib} KiB may be under way instead of 2 MiB, \
             as the receive buffer of some rank is small. On each host, as root: sysctl -w \
             net.core.rmem_max=8388608"
        ));
    }
}

/// Bytes before a member descriptor: a group's id and token (those of rank 0 are used), and a
/// number of the host.
const IDENTITY_LEN: usize = 24;
const HOST_AT: usize = 16;
/// Shift of the calls in the agreed word; the bits below are a mask of networks.
const CALLS_SHIFT: u32 = 8;

/// Reduces the wanted calls if several ranks share a host: there the MPI does all calls but
/// broadcasts faster in shared memory.
fn calls_of(offers: &[&[u8]], wanted: c_int) -> c_int {
    match share_hosts(offers) {
        true => wanted & Call::Bcast.bit(),
        false => wanted,
    }
}

/// Returns whether two or more ranks are on one host.
fn share_hosts(offers: &[&[u8]]) -> bool {
    let mut hosts: Vec<&[u8]> = offers.iter().map(|o| &o[HOST_AT..IDENTITY_LEN]).collect();
    hosts.sort_unstable();
    hosts.windows(2).any(|pair| pair[0] == pair[1])
}

/// A number common to all processes of this host and network namespace (of a container).
fn host() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .hash(&mut hasher);
    std::fs::read_link("/proc/self/ns/net")
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

fn identity(offer: &[u8]) -> (u64, u32) {
    let id = offer.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let token = offer[8..]
        .first_chunk()
        .map_or(0, |b| u32::from_le_bytes(*b));
    (id, token)
}

fn fill_random(bytes: &mut [u8]) -> bool {
    // SAFETY: the pointer and length of a slice.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    filled == bytes.len() as isize
}

/// The remaining time of a probe.
struct Patience {
    left: Duration,
    end: Instant,
    last: Instant,
}

impl Patience {
    fn new(now: Instant) -> Patience {
        Patience {
            left: PROBE_TIME,
            end: now + PROBE_TIME_MAX,
            last: now,
        }
    }

    /// Updates the remaining time. Returns whether any is left.
    fn lasts(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.last).min(LOOK_TIME);
        (self.left, self.last) = (self.left.saturating_sub(took), now);
        !self.left.is_zero() && now < self.end
    }
}

/// Sends and receives probes. Returns a mask of the networks on which all hosts were heard.
fn probe(provider: &Provider, group: isize) -> c_int {
    let begun = Instant::now();
    let (mut probes, mut next) = (0, begun);
    let mut heard = 0;
    let mut patience = Patience::new(begun);
    while patience.lasts(Instant::now()) {
        if Instant::now() >= next {
            (provider.probe)(group);
            (probes, next) = (probes + 1, Instant::now() + PROBE_PAUSE);
        }
        (provider.progress)();
        let before = heard;
        heard = (provider.heard)(group).max(0) as c_int;
        // Other networks may be slightly later than the first.
        if heard != 0 && heard == before && probes >= PROBES_MIN {
            break;
        }
    }
    heard
}

/// Closes the group of a communicator that is about to be freed, without waiting for other ranks: a
/// lost rank would turn that into an error of the program. `settle` is called when nothing is in
/// flight here.
pub fn end(mpi: &Mpi, comm: Handle, settle: fn()) {
    let Some(agreed) = known(mpi, comm) else {
        return;
    };
    if let Some((group, spare)) = agreed.ahead {
        drain(mpi, &[group]);
        settle();
        requests::find()
            .into_iter()
            .for_each(|r| r.free_comm(spare));
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

/// Waits, before MPI is finalised, until this rank's broadcasts have arrived, but no longer for
/// other ranks (see [`end`]): a rank whose acknowledgement was lost has closed its endpoint, which
/// the provider reports to the others.
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
}

fn drain(mpi: &Mpi, groups: &[isize]) {
    let Some(provider) = provider::find() else {
        return;
    };
    let begun = Instant::now();
    let is_idle = |group: &isize| (provider.is_idle)(*group) != 0;
    while !groups.iter().all(is_idle) && begun.elapsed() < DRAIN_TIME {
        (provider.progress)();
        mpi.progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: ranks of 16 hosts on two processors were taken for hosts that multicast does not
    /// reach.
    #[test]
    fn a_probe_waits_longer_on_oversubscribed_hosts_but_not_forever() {
        let lasts_ms = |look: Duration| {
            let begun = Instant::now();
            let mut patience = Patience::new(begun);
            let mut looks = 1;
            while patience.lasts(begun + look * looks) {
                looks += 1;
            }
            (look * looks).as_millis()
        };
        assert_eq!(lasts_ms(Duration::from_micros(10)), 80);
        assert_eq!(lasts_ms(Duration::from_millis(5)), 400);
        assert_eq!(lasts_ms(Duration::from_millis(50)), 4_000);
        assert_eq!(lasts_ms(Duration::from_secs(1)), 5_000);
    }
}
