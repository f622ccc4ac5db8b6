//! Backpressure: rails without room, because the kernel's queue is full or does not move. Batches
//! that were built for such a rail wait, and no more are built until the rail has room; other rails
//! carry what they can. A rail that stays without room is given up until it accepts packets again:
//! the local-completion watchdog of paper 3.

use crate::api::LogLevel;
use crate::core::Core;
use crate::platform::system::System;
use crate::state::rails::{Backpressure, Pending, STUCK_NS};
use marline_codes::Code;
use marline_rails::TxBuffers;

/// Time after which frames that are not bound to the full rail (acks above all) leave by other
/// rails: 64 KiB take half of this time at 100 Mb/s.
const REROUTE_NS: u64 = 10_000_000;
/// Longest interval between attempts to send. An attempt is a system call that copies up to 64 KiB,
/// possibly in vain, so the interval grows with the time without room.
const TRY_NS: u64 = 1_000_000;

impl<S: System> Core<S> {
    /// Notes that a rail had no room for a batch or for a packet that the caller retains.
    pub(crate) fn no_room(&mut self, now: u64, rail: usize, batch: Option<Pending>) {
        let state = &mut self.rails[rail];
        if batch.is_some() {
            state.pending = batch;
        }
        let full = state.backpressure.get_or_insert(Backpressure {
            since_ns: now,
            try_ns: now,
            rerouted: false,
        });
        full.try_ns = now + (now.saturating_sub(full.since_ns) / 8).min(TRY_NS);
        self.rails.full_mask |= 1 << rail;
    }

    /// Notes that no packet waits for room on a rail: more may be built if the rail lends a buffer.
    /// (A device may still be reading all buffers.)
    pub(crate) fn has_room(&mut self, rail: usize) {
        let state = &mut self.rails.list[rail];
        state.buffer = state.buffer.or_else(|| state.tx.lend());
        if state.buffer.is_none() {
            return;
        }
        self.deferred |= self.rails[rail].backpressure.take().is_some();
        self.rails.full_mask &= !(1 << rail);
    }

    /// Retries pending packets.
    pub(crate) fn send_pending(&mut self, now: u64) {
        for rail in 0..self.rails.len() {
            if self.rails[rail]
                .backpressure
                .is_none_or(|full| now < full.try_ns)
            {
                continue;
            }
            let pending = self.rails[rail].pending.take();
            let writes = pending.as_ref().is_some_and(|p| p.write().is_some());
            // A held-back write notification leaves with the next write, or before packets built
            // after it.
            if !writes && !self.send_notification(now, rail) {
                self.no_room(now, rail, pending);
                continue;
            }
            if !pending.is_none_or(|pending| self.send_again(now, rail, pending)) {
                continue;
            }
            if !self.send_batches_of(now, rail) {
                continue;
            }
            self.has_room(rail);
            if self.rails[rail].buffer.is_none() {
                self.no_room(now, rail, None);
            }
        }
    }

    /// Gives up rails that have had no room for too long, and retries rails that were given up.
    pub(crate) fn watch_room(&mut self, now: u64, rail: usize) {
        let several = self.rails.len() > 1;
        let state = &mut self.rails[rail];
        let Some(full) = &mut state.backpressure else {
            // A rail that was given up is retried at least this often.
            if state.stuck_ns.is_some_and(|at| at + 2 * STUCK_NS <= now) {
                state.stuck_ns = None;
                let text = format!("rail {} takes packets again", state.name);
                self.say(LogLevel::Info, &text);
            }
            return;
        };
        self.deferred |= full.try_ns <= now;
        let waited_ns = now.saturating_sub(full.since_ns);
        let stuck = waited_ns >= state.completion_timeout_ns;
        if !several || !stuck && (full.rerouted || waited_ns < REROUTE_NS) {
            return;
        }
        full.rerouted = true;
        if stuck {
            let news = state.stuck_ns.replace(now).is_none();
            let text = format!(
                "rail {} has taken no packet for {} ms: others carry what it held",
                state.name,
                waited_ns / 1_000_000
            );
            if news {
                self.warn(Code::RailStuck, &text);
            }
            // The rail's packets leave by other rails. The next packets built for this rail,
            // usually probes, show whether there is room again.
            self.drop_pending(rail);
        }
        for node in self.dir.nodes() {
            node.on_full(now, rail, stuck);
        }
    }
}
