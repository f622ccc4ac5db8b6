//! Repair timers of a path: how long they run. They double up to a bound, where the peer is heard:
//! then it is the path that carries nothing, and another one may. A peer of whom nothing is heard
//! on any path for long is silent itself, and hears from us ever more rarely (RFC 8961, section 4).

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathState;
use crate::state::path::{Path, FEW_PACKETS, REPAIR_START_MAX_NS};
use crate::state::session::Liveness;

/// Repeated repairs come up to a quarter of their interval early, by one of so many steps.
const JITTER_SHARE: u64 = 4;
const JITTER_STEPS: u64 = 64;

/// Repairs to such a peer come once in this part of its silence, where that is rarer than usual:
/// a network that carries again is noticed before its outage has lasted an eighth longer.
const SILENCE_SHARE: u64 = 8;

impl Path {
    /// Current repair interval, of a peer with these signs of life.
    #[inline]
    pub fn repair_ns(&self, cfg: &Config, life: &Liveness) -> u64 {
        if self.waits() {
            return (self.stall_ns(cfg) << self.backoff.min(4)).min(REPAIR_START_MAX_NS);
        }
        let first = self.first_repair_ns(cfg);
        if self.backoff == 0 {
            return first;
        }
        let most = cfg.repair_cap_ns.max(first).max(self.slowed_ns(cfg, life));
        let interval = (first << self.backoff.min(12)).min(most);
        // Repairs of one exact period can meet a full queue every time, when a stream of another
        // sender that fills it has a period, too: the intervals between repeats differ.
        interval - self.jitter() * (interval / JITTER_SHARE) / JITTER_STEPS
    }

    #[inline]
    fn first_repair_ns(&self, cfg: &Config) -> u64 {
        // Before the first sample: 1 ms covers a cold cache, ARP and a peer's first poll.
        let first = if self.srtt_ns == 0 {
            1_000_000
        } else if self.ring.waiting() <= FEW_PACKETS {
            self.answer_ns(cfg)
        } else {
            (4 * self.srtt_ns)
                .max(self.srtt_ns + 4 * self.rttvar_ns)
                .max(cfg.repair_floor_ns)
        };
        first.max(self.drains_ns()).min(REPAIR_START_MAX_NS)
    }

    /// To a peer of whom nothing was heard on any path for long, repairs come ever more rarely,
    /// until they are questions and as rare as these may be: this long after the last. (For less it
    /// may be off its processor, between two polls: what it finds then decides how soon it is
    /// understood.)
    fn slowed_ns(&self, cfg: &Config, life: &Liveness) -> u64 {
        // (Heard or not: where nothing arrives at it, what is sent again does not either.)
        let silent_ns = life.deaf_until(self.repair_from);
        if silent_ns < cfg.mute_ns() || cfg.errs(Mutation::RepairAll) {
            return 0;
        }
        (silent_ns / SILENCE_SHARE).min(cfg.asks_every_ns())
    }

    /// Returns whether the silence of the peer has slowed this path's repairs.
    pub(crate) fn is_slowed(&self, cfg: &Config, life: &Liveness) -> bool {
        let usual_ns = cfg.repair_cap_ns.max(self.first_repair_ns(cfg));
        self.slowed_ns(cfg, life) > usual_ns
    }

    /// Below `JITTER_STEPS`, drawn from when this repair interval began; 0 before anything had to
    /// be repeated.
    fn jitter(&self) -> u64 {
        if self.backoff == 0 {
            return 0;
        }
        // Fibonacci hashing: the upper bits of the product depend on all bits of the time.
        self.repair_from.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - JITTER_STEPS.ilog2())
    }

    /// When the repair timer expires, if it runs, by what is known of the path alone.
    #[inline]
    pub fn repair_at(&self, cfg: &Config, life: &Liveness) -> Option<u64> {
        (self.ring.waiting() > 0 && !self.rail_down && self.state != PathState::Down)
            .then(|| self.repair_from + self.repair_ns(cfg, life))
    }
}
