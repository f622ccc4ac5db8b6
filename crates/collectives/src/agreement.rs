//! The agreement of a communicator's ranks on a group, by collective calls of the MPI on the
//! communicator itself, within a call of the program (docs/design/collectives.md).
//!
//! A rank whose error handler ends the job ends with the first of these calls that fails, as with a
//! call of the program. Any other rank gets the errors as return values, hidden from the program
//! ([`Quiet`]). Such a rank makes all calls that the others may make, even after a failed one: the
//! others would otherwise wait for a rank that left. So if one rank handles errors, all ranks make
//! all calls.

use crate::calls;
use crate::mpi::{Handle, Mpi};
use crate::offer::{self, Offer, Offers};
use crate::provider::{self, Provider};
use crate::quiet::Quiet;
use crate::requests;
use crate::survival::Agreement;
use marline_codes::Code;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time within which probes arrive if the network carries multicast, even on hosts with more ranks
/// than cores, where some ranks begin to probe long after others (docs/design/collectives.md).
const PROBE_TIME: Duration = Duration::from_secs(1);
/// Most of a poll's duration that counts. A poll takes microseconds; during a longer poll another
/// process ran, and the other ranks may have been descheduled as well.
const LOOK_TIME: Duration = Duration::from_millis(1);
/// Longest time for all polls together: hosts that need more are too oversubscribed to measure a
/// network (docs/design/collectives.md).
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);
/// Least number of probes of each rank: any packet may be lost.
const PROBES_MIN: u32 = 4;
/// Pause between the first [`PROBES_MIN`] probes; each later pause is twice as long, up to
/// [`PROBE_PAUSE_MAX`].
const PROBE_PAUSE: Duration = Duration::from_millis(2);
/// Longest pause between two probes. Probes wait in the receivers' sockets, so later probes only
/// replace lost ones: a second of them costs a network less than 100 KiB for each host.
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(64);

/// The outcome of an agreement.
pub enum Outcome {
    /// No rank uses a group.
    None,
    /// The group carries the agreed calls. It carries nonblocking broadcasts only if there is a
    /// `spare` communicator, on which the MPI carries the broadcasts that the group refuses.
    Group {
        group: isize,
        calls: c_int,
        spare: Option<Handle>,
        /// Some rank's error handler does not end the job.
        handled: bool,
    },
    /// A rank is dead, and calls of this rank fail. Either all survivors know of the death; or the
    /// rank died so late that others may use the group, and their broadcasts end with an error
    /// because a member is dead.
    Dead,
}

/// Bits of the networks in the agreed word, at most eight. A set bit means that all ranks can use
/// the network.
const NETWORKS: c_int = 0xff;
/// Bit of the agreed word: all ranks have the spare communicator, on which broadcasts that the
/// group refuses are done.
const SPARE: c_int = 1 << 8;

/// Agrees for a communicator. All ranks call this at the same place in their calls.
pub fn reach(mpi: &Mpi, comm: Handle, (rank, ranks): (usize, usize)) -> Outcome {
    let quiet = Quiet::of(mpi, comm);
    let flags = offer::flags(quiet.is_some(), requests::find().is_some());
    let provider = provider::find();
    let own = Offer::own(provider, flags);
    let offers = mpi
        .gather(comm, own.bytes(), ranks)
        .map(|all| Offers::new(all, ranks));
    let handled = quiet.is_some() || offers.as_ref().is_some_and(Offers::some_handles_errors);
    if handled && !calls::are_asked_for() {
        // The program handles errors, and the user did not request multicast.
        return Outcome::None;
    }
    let usable = offers.as_ref().filter(|offers| {
        let beside = !calls::are_asked_for() && offers.share_hosts();
        offers.are_complete() && !beside
    });
    let agreeing = Agreeing {
        mpi,
        comm,
        rank,
        ranks,
        handled,
    };
    agreeing.rest(provider, usable).unwrap_or(Outcome::None)
}

/// An agreement after its first call.
struct Agreeing<'a> {
    mpi: &'a Mpi,
    comm: Handle,
    rank: usize,
    ranks: usize,
    /// True if some rank handles errors, or may: then all ranks make all calls.
    handled: bool,
}

impl Agreeing<'_> {
    /// Joins the group, probes which networks carry it, and agrees. Returns `None` if there is no
    /// group.
    fn rest(&self, provider: Option<&Provider>, usable: Option<&Offers>) -> Option<Outcome> {
        let &Agreeing { mpi, comm, .. } = self;
        if usable.is_none() && !self.handled {
            return None; // at all ranks alike
        }
        let open = |(provider, offers): (&Provider, &Offers)| {
            provider.open(offers.identity(), self.rank, &offers.descriptors())
        };
        let group = provider.zip(usable).and_then(open);
        let opened = Opened { provider, group };
        let joined = mpi.agree(comm, -(group.is_some() as c_int));
        if joined == Some(0) && usable.is_some() {
            self.say_not_carried("cannot be joined by a rank");
        }
        let joined = joined.is_some_and(|all| all != 0);
        if !joined && !self.handled {
            return None; // at all ranks alike; `opened` is closed
        }
        // All ranks have joined the group.
        let networks = match joined {
            true => probe(provider?, group?),
            false => 0,
        };
        let spare = self.spare(usable);
        let ours = networks | if spare.is_some() { SPARE } else { 0 };
        let agreement = match self.handled {
            true => mpi.agree_for_all(comm, if networks > 0 { ours } else { 0 }),
            false => mpi
                .agree(comm, ours)
                .map_or(Agreement::Failed, Agreement::Reached),
        };
        if joined && matches!(agreement, Agreement::Reached(all) if all & NETWORKS == 0) {
            self.say_not_carried("does not reach a rank");
        }
        let kept = match agreement {
            Agreement::Reached(all) if all & NETWORKS != 0 => opened.start(mpi, all & NETWORKS),
            _ => None,
        };
        let is_spare = matches!(agreement, Agreement::Reached(all) if all & SPARE != 0);
        let spare = spare.and_then(|spare| {
            let stays = kept.is_some() && is_spare;
            if !stays {
                mpi.free_comm(spare);
            }
            stays.then_some(spare)
        });
        match (kept, agreement) {
            (Some(group), _) => Some(Outcome::Group {
                group,
                calls: usable?.calls(),
                spare,
                handled: self.handled,
            }),
            (None, Agreement::Unknown) if networks > 0 => Some(Outcome::Dead),
            (None, Agreement::Failed) => Some(Outcome::Dead),
            (None, _) => None,
        }
    }

    fn say_not_carried(&self, why: &str) {
        if self.rank == 0 && calls::are_asked_for() {
            let text = format!(
                "the network does not carry multicast between {} ranks (it {why}): all of theirs \
                 goes point to point",
                self.ranks
            );
            crate::guard::say(Code::NoMulticast, &text);
        }
    }

    /// Makes the communicator for nonblocking broadcasts that the group refuses, if all ranks can
    /// do nonblocking broadcasts.
    fn spare(&self, usable: Option<&Offers>) -> Option<Handle> {
        let all_can = usable.is_some_and(Offers::all_have_requests);
        if !all_can && !self.handled {
            return None; // at all ranks alike
        }
        let made = self.mpi.same_ranks(self.comm, self.rank);
        made.filter(|&made| {
            if !all_can {
                self.mpi.free_comm(made);
            }
            all_can
        })
    }
}

/// A group that closes on drop unless it was started.
struct Opened<'a> {
    provider: Option<&'a Provider>,
    group: Option<isize>,
}

impl Opened<'_> {
    /// Uses these networks, as all ranks do; returns the group.
    fn start(mut self, mpi: &Mpi, networks: c_int) -> Option<isize> {
        let (provider, group) = (self.provider?, self.group?);
        (provider.start)(group, networks as u8);
        let narrow = (provider.narrow)(group);
        if narrow > 0 && !calls::are_asked_for() {
            return None; // All ranks know all receive buffers, and decide alike.
        }
        warn_of_window(mpi, narrow);
        self.group.take()
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if let (Some(provider), Some(group)) = (self.provider, self.group) {
            (provider.close)(group);
        }
    }
}

/// Rank 0 of `MPI_COMM_WORLD` reports once that long broadcasts are slow, since roots may have only
/// `bytes` in flight. 0: no limit worth a report.
fn warn_of_window(mpi: &Mpi, bytes: isize) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let first = || mpi.world().and_then(|world| mpi.rank_and_size(world));
    let warns = bytes > 0 && first().is_some_and(|(rank, _)| rank == 0);
    if warns && !WARNED.swap(true, Ordering::Relaxed) {
        let kib = bytes >> 10;
        let text = format!(
            "long broadcasts by multicast are slow: {kib} KiB may be under way instead of 2 MiB, \
             as the receive buffer of some rank is small. On each host, as root: sysctl -w \
             net.core.rmem_max=8388608"
        );
        crate::guard::say(Code::KernelLimit, &text);
    }
}

/// The remaining time of a probe.
struct MembershipRetry {
    left: Duration,
    end: Instant,
    last: Instant,
}

impl MembershipRetry {
    fn new(now: Instant) -> MembershipRetry {
        MembershipRetry {
            left: PROBE_TIME,
            end: now + PROBE_TIME_MAX,
            last: now,
        }
    }

    /// Subtracts the time since the last call. Returns true if time remains.
    fn lasts(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.last).min(LOOK_TIME);
        (self.left, self.last) = (self.left.saturating_sub(took), now);
        !self.left.is_zero() && now < self.end
    }
}

/// Pause after this many probes.
fn pause_after(probes: u32) -> Duration {
    let doublings = probes.saturating_sub(PROBES_MIN).min(16);
    (PROBE_PAUSE * (1 << doublings)).min(PROBE_PAUSE_MAX)
}

/// Multicasts probes and receives those of others. Returns, as bits, the networks on which probes
/// of all hosts arrived.
fn probe(provider: &Provider, group: isize) -> c_int {
    let begun = Instant::now();
    let (mut probes, mut next) = (0, begun);
    let mut heard = 0;
    let mut retry = MembershipRetry::new(begun);
    while retry.lasts(Instant::now()) {
        if Instant::now() >= next {
            (provider.probe)(group);
            probes += 1;
            next = Instant::now() + pause_after(probes);
        }
        (provider.progress)();
        // Ranks on the same core send their probes only when they run.
        std::thread::yield_now();
        let before = heard;
        heard = (provider.heard)(group).max(0) as c_int;
        // Probes of other networks may arrive a little later than the first.
        if heard != 0 && heard == before && probes >= PROBES_MIN {
            break;
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a network that loses multicast carried 500 probes of each host.
    #[test]
    fn probes_of_a_second_are_few() {
        let (mut probes, mut last) = (0, Duration::ZERO);
        while last < PROBE_TIME {
            probes += 1;
            last += pause_after(probes);
        }
        assert!((10..=30).contains(&probes), "{probes} probes");
    }

    /// Regression: ranks of 16 hosts on two processors counted as hosts without multicast.
    #[test]
    fn a_probe_waits_longer_on_oversubscribed_hosts_and_not_for_ever() {
        let lasts_ms = |look: Duration| {
            let begun = Instant::now();
            let mut retry = MembershipRetry::new(begun);
            let mut looks = 1;
            while retry.lasts(begun + look * looks) {
                looks += 1;
            }
            (look * looks).as_millis()
        };
        assert_eq!(lasts_ms(Duration::from_micros(10)), 1_000);
        assert_eq!(lasts_ms(Duration::from_millis(5)), 5_000);
        assert_eq!(lasts_ms(Duration::from_millis(50)), 5_000);
        assert_eq!(lasts_ms(Duration::from_secs(1)), 5_000);
    }
}
