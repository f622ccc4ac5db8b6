//! Length of a path's retransmission timer (PTO). It doubles up to a bound while the peer is heard:
//! then only the path fails, and another path may work. If nothing was heard on any path for long,
//! the peer itself is silent, and retransmissions become ever rarer (RFC 8961, section 4).

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathState;
use crate::state::path::{Path, FEW_PACKETS, PTO_INITIAL_MAX_NS};
use crate::state::session::Liveness;

/// The interval to a silent peer is one part in this many of the silence: when the network works
/// again, that is noticed before the outage has lasted an eighth longer.
const SILENCE_SHARE: u64 = 8;

impl Path {
    /// Current retransmission interval, given the peer's signs of life.
    #[inline]
    pub fn pto_ns(&self, cfg: &Config, life: &Liveness) -> u64 {
        if self.waits() {
            return (self.stall_ns(cfg) << self.pto.backoff().min(4)).min(PTO_INITIAL_MAX_NS);
        }
        let first = self.initial_pto_ns(cfg);
        if self.pto.backoff() == 0 {
            return first;
        }
        let most = cfg.pto_cap_ns.max(first).max(self.slowed_ns(cfg, life));
        self.pto.interval_ns(first, most)
    }

    #[inline]
    fn initial_pto_ns(&self, cfg: &Config) -> u64 {
        // Before the first sample: 1 ms covers a cold cache, ARP and a peer's first poll.
        let first = if !self.rtt.is_known() {
            1_000_000
        } else if self.ring.waiting() <= FEW_PACKETS {
            self.answer_ns(cfg)
        } else {
            (self.rtt.four_ns())
                .max(self.rtt.with_variation_ns())
                .max(cfg.pto_floor_ns)
        };
        first.max(self.drains_ns()).min(PTO_INITIAL_MAX_NS)
    }

    /// The bound of the interval to a peer that was silent on all paths for long. It grows until
    /// retransmissions leave at the least rate of probes. (A shorter silence may mean a descheduled
    /// peer, which answers as soon as it runs only if packets already wait for it.)
    fn slowed_ns(&self, cfg: &Config, life: &Liveness) -> u64 {
        // (A peer that is heard counts as well: if it receives nothing, retransmissions are lost
        // too.)
        let silent_ns = life.unread_until(self.pto.since_ns());
        if silent_ns < cfg.peer_silent_ns() || cfg.errs(Mutation::ResendAll) {
            return 0;
        }
        (silent_ns / SILENCE_SHARE).min(cfg.probe_interval_max_ns())
    }

    /// True if the peer's silence has slowed this path's retransmissions.
    pub(crate) fn is_slowed(&self, cfg: &Config, life: &Liveness) -> bool {
        let usual_ns = cfg.pto_cap_ns.max(self.initial_pto_ns(cfg));
        self.slowed_ns(cfg, life) > usual_ns
    }

    /// When the retransmission timer expires, if it runs, from the state of this path alone.
    #[inline]
    pub fn pto_at(&self, cfg: &Config, life: &Liveness) -> Option<u64> {
        (self.ring.waiting() > 0 && !self.rail_down() && self.state() != PathState::Down)
            .then(|| self.pto.since_ns() + self.pto_ns(cfg, life))
    }
}
