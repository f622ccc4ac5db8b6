//! Shrinks the buffers of idle peers: with a thousand peers, rings that grew in one burst would add
//! up. This runs in polls and needs no timer: a process that does not poll does not need the memory
//! for other things either.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::directory::Directory;

/// A peer unheard for this long is idle. Longer than one step of most programs, so that memory used
/// in each step stays allocated; short compared to a run.
const IDLE_NS: u64 = 1_000_000_000;

impl Directory {
    /// Records that peer `index` has grown buffers.
    pub(crate) fn note_oversized(&mut self, index: u32, now: u64) {
        self.oversized.push(index);
        self.reclaim_at = self.reclaim_at.min(now + IDLE_NS);
    }

    /// Shrinks the buffers of idle peers, and schedules the next check of the other peers.
    fn reclaim_idle(&mut self, now: u64) {
        let Directory {
            oversized, peers, ..
        } = self;
        oversized.retain(|&index| {
            let peer = peers.get_mut(index as usize);
            let conn = peer.and_then(|p| p.conn.as_deref_mut());
            conn.is_some_and(|conn| !conn.reclaim(now))
        });
        self.reclaim_at = match oversized.is_empty() {
            true => u64::MAX,
            false => now + IDLE_NS,
        };
    }
}

impl Node {
    /// Shrinks the buffers of idle peers, and forgets those that are gone.
    #[cold]
    pub(crate) fn reclaim(&mut self, now: u64) {
        self.stats.visited += self.directory.oversized.len() as u64;
        self.directory.reclaim_idle(now);
        self.reclaim_departed(now);
        let departed_at = self.directory.departed.at();
        self.directory.reclaim_at = self.directory.reclaim_at.min(departed_at);
    }
}

impl Conn {
    /// Drops all packets to and from a dead peer.
    pub(crate) fn forget_packets(&mut self, cfg: &Config) {
        if cfg.errs(Mutation::KeepDead) {
            return;
        }
        for path in &mut self.paths {
            path.ring = Default::default();
        }
        self.tx.control.clear();
        self.tx.grants.clear();
    }

    /// Returns whether the connection's rings exceed the needs of a quiet peer.
    pub(crate) fn is_oversized(&self) -> bool {
        self.paths.iter().any(|p| p.ring.is_oversized())
    }

    /// Shrinks the connection's buffers if the peer is idle. Returns true if it was.
    fn reclaim(&mut self, now: u64) -> bool {
        let idle = now.saturating_sub(self.life.heard_ns) >= IDLE_NS;
        let ended = self.session.is_over();
        if self.waiting() > 0 || self.has_small() || !(idle || ended) {
            return false;
        }
        for path in &mut self.paths {
            path.ring.shrink();
            path.loss.shrink();
        }
        self.tx.shrink();
        self.listed.oversized = false;
        true
    }
}
