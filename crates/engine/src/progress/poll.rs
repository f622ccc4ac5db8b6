//! Polls of the rails: the choice of sockets, yields after empty polls, and detection of other
//! processes that want the core. The receiving halves have a lock of their own, so that the system
//! call of an empty poll runs outside the engine's lock.

use crate::core::Core;
use crate::platform::sync::{MutexGuard, Ordering, PoisonError};
use crate::platform::system::System;
use crate::progress::cpu_yield::CpuYield;
use crate::progress::receivers::Receivers;
use crate::progress::shared::Shared;
use marline_rails::{RailRx, Received};

/// Poll gap after which all rails are polled, not only the one heard last: probes of the others may
/// be waiting. MPICH yields after each poll, so that on an oversubscribed core there may be one
/// poll in 4 ms. Polling another socket costs about 0.2 us, 0.2 % of this.
const LONG_NS: u64 = 100_000;
/// Rails other than the one heard last, and sockets on which no packets are expected, are polled
/// only once in this many polls or after a gap, because each socket costs a system call.
const OTHERS_EVERY: u32 = 16;

/// While a broadcast is awaited on a rail, one poll in this many covers more than its group
/// sockets.
const BESIDE_GROUPS_EVERY: u32 = 4;

/// Polls that look only once at the sockets, since no packet is awaited, after the last open remote
/// operation has ended: MPICH polls twice more before a flush returns.
const APP_POLL_BUDGET: u32 = 2;

/// Polls without a yield after one that executed peers' RPCs: the next RPC takes so many polls to
/// arrive.
const SERVE_POLL_BUDGET: u32 = 4;

/// The core and the time of locking, if a poll has locked it.
pub(crate) type Held<'a, S> = Option<(MutexGuard<'a, Core<S>>, u64)>;

/// Most receives per rail in a `short_poll`: since the last one `SHORT_POLL_BYTES` were sent, to
/// which peers that ack every 64 packets respond with two or three packets.
const SHORT_POLL_TAKES: usize = 4;

/// The part of a rail to poll.
#[derive(Clone, Copy)]
enum Of {
    /// Sockets on which packets are expected.
    All,
    /// Only the group sockets of `All`.
    Groups,
    /// Sockets on which none are expected.
    Eviction,
}

/// Result of a poll of the rails.
struct Look {
    /// Number of datagrams received.
    taken: usize,
    /// True if all rails were polled completely.
    all: bool,
    now: u64,
}

impl<S: System> Shared<S> {
    /// The application's progress call; returns with the core locked.
    pub(crate) fn poll(&self) -> MutexGuard<'_, Core<S>> {
        self.poll_as(true)
    }

    /// Like [`Shared::poll`]. `yields`: yields the core to other processes where they may want it;
    /// otherwise the caller does.
    pub(crate) fn poll_as(&self, yields: bool) -> MutexGuard<'_, Core<S>> {
        let mut held = None;
        let Look { taken, all, now } = self.poll_rails(&mut held, yields);
        let (mut core, now) = held.unwrap_or_else(|| {
            let mut core = self.lock();
            core.on_poll(now, false);
            (core, now)
        });
        core.counters.process.polls += 1;
        core.buffers.copied = 0;
        if core.poisoned {
            return core; // a panic left the state inconsistent
        }
        if taken == 0 && all {
            core.caught_up();
        }
        if taken == 0 || all {
            core.tick(now);
            core.log_borrowed(now);
        } else {
            core.settle();
        }
        if core.has_output() {
            core.flush(now);
        }
        if std::mem::take(&mut core.answered) {
            self.app_poll_budget.refill(APP_POLL_BUDGET);
        }
        if std::mem::take(&mut core.served) {
            self.serve_poll_budget.refill(SERVE_POLL_BUDGET);
        }
        if all {
            self.serve_poll_budget.end(); // other processes get the core from time to time
        }
        if all && !self.threaded {
            drop(core);
            self.slow_work(now);
            core = self.lock();
        }
        core
    }

    /// Polls the sockets once, outside the engine's lock, and returns the number of datagrams.
    /// `core` is locked when the first one arrives.
    pub(crate) fn receive<'a>(
        &'a self,
        receivers: &mut Receivers<S::Rx>,
        core: &mut Held<'a, S>,
        by_thread: bool,
    ) -> usize {
        self.receive_once(receivers, core, by_thread)
    }

    /// [`Shared::receive`], inlined into the hottest loop.
    #[inline(always)]
    fn receive_once<'a>(
        &'a self,
        receivers: &mut Receivers<S::Rx>,
        core: &mut Held<'a, S>,
        by_thread: bool,
    ) -> usize {
        receivers.turn = receivers.turn.wrapping_add(1);
        let last = receivers.last;
        let mut taken = self.receive_rail(receivers, last, core, by_thread);
        let all = receivers.turn % OTHERS_EVERY == 0;
        let hot = receivers.hot | self.awaited.load(Ordering::Relaxed);
        if all || hot & !(1 << last) != 0 {
            for rail in 0..receivers.halves.len() {
                if rail != last && (all || hot >> rail & 1 == 1) {
                    let more = self.receive_rail(receivers, rail, core, by_thread);
                    if more > 0 && taken == 0 {
                        receivers.last = rail;
                    }
                    taken += more;
                }
            }
        }
        if all {
            for rail in 0..receivers.halves.len() {
                taken += self.receive_from((rail, Of::Eviction), receivers, core, by_thread);
            }
        }
        receivers.yields.count(taken);
        if taken > 0 {
            self.wake_sleepers(receivers);
        }
        taken
    }

    fn receive_rail<'a>(
        &'a self,
        receivers: &mut Receivers<S::Rx>,
        rail: usize,
        core: &mut Held<'a, S>,
        by_thread: bool,
    ) -> usize {
        let of = match receivers.waits && !by_thread && self.is_turn_of_groups(receivers, rail) {
            true => Of::Groups,
            false => Of::All,
        };
        let taken = self.receive_from((rail, of), receivers, core, by_thread);
        receivers.note(rail, taken > 0);
        taken
    }

    /// True if a broadcast is awaited on the rail and this poll covers only its group sockets.
    fn is_turn_of_groups(&self, receivers: &Receivers<S::Rx>, rail: usize) -> bool {
        let awaited = self.awaited.load(Ordering::Relaxed) >> rail & 1 == 1;
        awaited && receivers.turn % BESIDE_GROUPS_EVERY != 0
    }

    /// Polls a rail.
    #[inline]
    fn receive_from<'a>(
        &'a self,
        (rail, of): (usize, Of),
        receivers: &mut Receivers<S::Rx>,
        core: &mut Held<'a, S>,
        by_thread: bool,
    ) -> usize {
        let landed = &mut receivers.landed;
        let mut sink = |received: Received<'_>| {
            *landed |= received.beside > 0;
            let (core, now) = core.get_or_insert_with(|| {
                let now = self.clock.now_ns();
                let mut core = self.lock();
                // Before any packet is processed: acks delayed by a poll gap give wrong round-trip
                // times.
                core.on_poll(now, by_thread);
                (core, now)
            });
            if !core.poisoned {
                core.ingest(*now, rail, &received);
            }
        };
        let half = &mut receivers.halves[rail];
        match of {
            Of::All => half.recv(&mut sink),
            Of::Groups => half.recv_groups(&mut sink),
            Of::Eviction => half.recv_rest(&mut sink),
        }
    }

    pub(crate) fn receivers(&self) -> MutexGuard<'_, Receivers<S::Rx>> {
        self.receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The application's poll of the rails.
    fn poll_rails<'a>(&'a self, held: &mut Held<'a, S>, yields: bool) -> Look {
        let mut receivers = self.receivers();
        receivers.waits = !yields;
        let mut taken = self.receive_often(&mut receivers, held, yields);
        let due = receivers.yields.due().filter(|_| taken == 0 && yields);
        let mut yielded = due.map(|yielded| self.fit(&receivers, yielded));
        if matches!(yielded, Some(CpuYield::Sleep | CpuYield::ShortSleep)) && receivers.arm() {
            taken = self.receive(&mut receivers, held, false);
            yielded = yielded.filter(|_| taken == 0);
        }
        if let Some(yielded) = yielded {
            debug_assert!(held.is_none(), "nothing came: the core is not locked");
            receivers = self.yield_processor(receivers, yielded);
        }
        let now = match held {
            Some((_, now)) => *now,
            None => self.clock.now_ns(),
        };
        self.note_gap(&mut receivers, now);
        let mut all = receivers.turn % OTHERS_EVERY == 0;
        if !all && now.saturating_sub(receivers.all_ns) > LONG_NS {
            receivers.want_all();
            taken += self.receive(&mut receivers, held, false);
            all = true;
        }
        if all {
            receivers.all_ns = now;
        }
        if std::mem::take(&mut receivers.landed) && receivers.yields.is_alone() {
            self.landed.store(true, Ordering::Relaxed);
        }
        Look { taken, all, now }
    }

    /// Polls once, or several times where packets arrive often and the caller does not choose how
    /// often to poll.
    fn receive_often<'a>(
        &'a self,
        receivers: &mut Receivers<S::Rx>,
        held: &mut Held<'a, S>,
        often: bool,
    ) -> usize {
        let often = often && !self.app_poll_budget.take();
        let mut more = if often { receivers.tries() } else { 0 };
        let taken = loop {
            let taken = self.receive_once(receivers, held, false);
            if taken > 0 || more == 0 {
                break taken;
            }
            receivers.yields.look_again(); // counts as one poll of the application
            more -= 1;
        };
        receivers.learn(taken);
        taken
    }

    /// Polls all rails briefly between two sends, so that posted data continues to leave while the
    /// application copies. Does nothing while another thread polls. Does not count as a poll of the
    /// application, which is busy with a burst. When packets arrive, does the work that the
    /// progress thread would do and keeps the thread away, because both would compete for the
    /// locks.
    pub(crate) fn short_poll(&self) {
        let Ok(mut receivers) = self.receivers.try_lock() else {
            return;
        };
        let mut held = None;
        receivers.turn = receivers.turn.wrapping_add(1);
        let all = receivers.turn % OTHERS_EVERY == 0;
        for rail in 0..receivers.halves.len() {
            if all {
                self.receive_from((rail, Of::Eviction), &mut receivers, &mut held, true);
            }
            let mut takes = 0;
            while takes < SHORT_POLL_TAKES
                && self.receive_rail(&mut receivers, rail, &mut held, true) > 0
            {
                takes += 1;
            }
            receivers.note(rail, takes > 0);
        }
        if held.is_some() {
            self.wake_sleepers(&mut receivers);
        }
        let Some((mut core, now)) = held.filter(|(core, _)| !core.poisoned) else {
            return;
        };
        self.note_gap(&mut receivers, now);
        drop(receivers);
        core.tick(now);
        if core.has_output() {
            core.flush(now);
        }
    }
}
