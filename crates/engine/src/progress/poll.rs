//! Polls of the rails, outside the engine's lock: the receiving halves have a lock of their own, so
//! that the system call of an empty poll does not hold the engine's.

use crate::core::Core;
use crate::platform::sync::{MutexGuard, Ordering, PoisonError};
use crate::platform::system::System;
use crate::progress::receivers::{Pass, Receivers, OTHER_SOCKETS};
use crate::progress::shared::Shared;
use marline_rails::{RailRx, Received};

/// Poll gap after which all rails are polled, not only the rail heard last: probes may be waiting
/// on the others. MPICH yields after each poll, so that on an oversubscribed core there may be one
/// poll in 4 ms. Polling another socket costs about 0.2 us.
const LONG_NS: u64 = 100_000;

/// Number of polls that look at the sockets once, although no packet is awaited, after the last
/// open remote operation has ended: MPICH polls twice more before a flush returns.
const APP_POLL_BUDGET: u32 = 2;

/// Polls without a yield after a poll that executed peers' RPCs: the next RPC takes that many polls
/// to arrive.
const SERVE_POLL_BUDGET: u32 = 4;

/// The locked core and the time of locking, if a poll has locked it.
pub(crate) type Held<'a, S> = Option<(MutexGuard<'a, Core<S>>, u64)>;

/// Most receives per rail in a `short_poll`. Since the last one `SHORT_POLL_BYTES` were sent, to
/// which peers that acknowledge every 64 packets respond with two or three packets.
const SHORT_POLL_TAKES: usize = 4;

impl<S: System> Shared<S> {
    /// The application's progress call; returns with the core locked. `yields`: also yields the
    /// core to other processes that may want it; otherwise the caller does that.
    pub(crate) fn poll(&self, yields: bool) -> MutexGuard<'_, Core<S>> {
        let (mut receivers, mut held) = (self.receivers(), None);
        receivers.waits = !yields;
        let mut tries = match yields && !self.app_poll_budget.take() {
            true => receivers.tries(),
            false => 0,
        };
        let mut taken = loop {
            let taken = self.receive(&mut receivers, &mut held, Pass::Poll);
            if taken > 0 || tries == 0 {
                break taken;
            }
            receivers.yields.look_again(); // counts as one poll of the application
            tries -= 1;
        };
        receivers.learn(taken);
        if let Some(due) = receivers.yields.due().filter(|_| taken == 0 && yields) {
            (receivers, taken) = self.yield_idle(receivers, &mut held, due);
        }
        let now = match &held {
            Some((_, now)) => *now,
            None => self.clock.now_ns(),
        };
        self.note_gap(&mut receivers, now);
        if !receivers.polled_all() && now.saturating_sub(receivers.all_ns) > LONG_NS {
            receivers.want_all();
            taken += self.receive(&mut receivers, &mut held, Pass::Poll);
        }
        let all = receivers.polled_all();
        if all {
            receivers.all_ns = now;
        }
        if std::mem::take(&mut receivers.landed) && receivers.yields.is_alone() {
            self.landed.store(true, Ordering::Relaxed);
        }
        drop(receivers);
        let (mut core, now) = held.unwrap_or_else(|| {
            let mut core = self.lock();
            core.on_poll(now, false);
            (core, now)
        });
        core.after_poll(now, taken == 0, all);
        self.refill(core, now, all)
    }

    /// Polls the sockets of a pass once, outside the engine's lock, and returns the number of
    /// datagrams. `held` is locked when the first one arrives.
    pub(crate) fn receive<'a>(
        &'a self,
        receivers: &mut Receivers<S::Rx>,
        held: &mut Held<'a, S>,
        pass: Pass,
    ) -> usize {
        let by_thread = pass != Pass::Poll;
        let (mut due, groups) = receivers.due(pass, self.awaited.load(Ordering::Relaxed));
        let (mut at, mut taken) = (receivers.first(due), 0);
        while due != 0 {
            due &= !(1 << at);
            let rail = at % OTHER_SOCKETS;
            let landed = &mut receivers.landed;
            let mut sink = |received: Received<'_>| {
                *landed |= received.beside > 0;
                let (core, now) = held.get_or_insert_with(|| {
                    let now = self.clock.now_ns();
                    let mut core = self.lock();
                    // Before any packet is processed: acks delayed by a poll gap give wrong
                    // round-trip times.
                    core.on_poll(now, by_thread);
                    (core, now)
                });
                if !core.poisoned {
                    core.ingest(*now, rail, &received);
                }
            };
            let half = &mut receivers.halves[rail];
            let more = match at {
                OTHER_SOCKETS.. => half.recv_rest(&mut sink),
                _ if groups >> at & 1 == 1 => half.recv_groups(&mut sink),
                _ => half.recv(&mut sink),
            };
            if at < OTHER_SOCKETS {
                receivers.note(at, more > 0);
            }
            taken += more;
            at = due.trailing_zeros() as usize;
        }
        receivers.end(pass, taken);
        if taken > 0 {
            self.wake_sleepers(receivers);
        }
        taken
    }

    pub(crate) fn receivers(&self) -> MutexGuard<'_, Receivers<S::Rx>> {
        self.receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a poll: refills the poll budgets, and does the thread's work if there is no thread.
    fn refill<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core<S>>,
        now: u64,
        all: bool,
    ) -> MutexGuard<'a, Core<S>> {
        if core.poisoned {
            return core;
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

    /// Polls all rails briefly between two sends, so that posted data continues to leave while the
    /// application copies. Does nothing while another thread polls. Does not count as a poll of the
    /// application, which is busy with its burst. When packets arrive, this does the work of the
    /// progress thread and keeps the thread away, because both would compete for the locks.
    pub(crate) fn short_poll(&self) {
        let Ok(mut receivers) = self.receivers.try_lock() else {
            return;
        };
        let mut held = None;
        let all = receivers.next_turn();
        for rail in 0..receivers.halves.len() {
            if all {
                let others = Pass::Only(rail + OTHER_SOCKETS);
                self.receive(&mut receivers, &mut held, others);
            }
            let mut takes = 0;
            while takes < SHORT_POLL_TAKES
                && self.receive(&mut receivers, &mut held, Pass::Only(rail)) > 0
            {
                takes += 1;
            }
            receivers.note(rail, takes > 0);
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
