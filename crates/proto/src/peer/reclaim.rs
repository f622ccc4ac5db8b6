//! Memory that a burst took is given back when its peer is idle: with a thousand peers the rings
//! that were needed once for each would add up. It needs no timer: who does not poll has no need.

use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::conn::Conn;
use core::cmp::Reverse;

/// Nothing came from a peer for so long: it is idle. (Longer than a step of most programs, so that
/// what comes back each step finds its memory; short beside a run.)
const IDLE_NS: u64 = 1_000_000_000;
/// Deadlines that a node keeps beside one of each peer: with fewer there is little to gain.
const DEADLINES_SPARE: usize = 64;

impl Node {
    /// The peer `index` has more memory than one that says little.
    pub(crate) fn note_oversized(&mut self, index: u32, now: u64) {
        self.oversized.push(index);
        self.reclaim_at = self.reclaim_at.min(now + IDLE_NS);
    }

    /// Gives back what idle peers do not need; the others are asked again later.
    #[cold]
    pub(crate) fn reclaim(&mut self, now: u64) {
        let mut oversized = core::mem::take(&mut self.oversized);
        oversized.retain(|&index| {
            let peer = self.peers.get_mut(index as usize);
            let conn = peer.and_then(|p| p.conn.as_deref_mut());
            conn.is_some_and(|conn| !conn.reclaim(now))
        });
        self.reclaim_at = match oversized.is_empty() {
            true => u64::MAX,
            false => now + IDLE_NS,
        };
        self.oversized = oversized;
        self.reclaim_departed(now);
        self.reclaim_at = self.reclaim_at.min(self.departed.at());
    }

    /// Forgets deadlines that were replaced by earlier ones. A peer has one; but each time that it
    /// owes something the far one of its silence is followed by near ones, and would stay until it
    /// is due: with 10,000 messages a second as many, times the seconds that peers are waited for.
    pub(crate) fn prune_deadlines(&mut self) {
        let most = 2 * self.peers.len() + DEADLINES_SPARE;
        if self.deadlines.len() <= most || self.cfg.errs(Mutation::KeepDeadlines) {
            return;
        }
        self.deadlines.clear();
        let conns = self.peers.iter().filter_map(|p| p.conn.as_deref());
        let armed = conns.filter(|c| c.armed < u64::MAX);
        self.deadlines
            .extend(armed.map(|c| Reverse((c.armed, c.peer.0))));
    }

    /// Nothing more is sent to a dead peer, and nothing that it says is heard.
    pub(crate) fn forget_packets(&mut self, peer: PeerId) {
        if self.cfg.errs(Mutation::KeepDead) {
            return;
        }
        if let Some(conn) = self.conn_mut(peer) {
            for path in &mut conn.paths {
                path.ring = Default::default();
            }
            conn.control.clear();
            conn.grants.clear();
        }
    }
}

impl Conn {
    /// Returns whether its rings grew beyond what a peer that says little needs.
    pub(crate) fn is_oversized(&self) -> bool {
        self.paths.iter().any(|p| p.ring.is_oversized())
    }

    /// Gives back what it does not need, if it is idle.
    fn reclaim(&mut self, now: u64) -> bool {
        let idle = now.saturating_sub(self.heard_ns) >= IDLE_NS;
        let ended = self.dead || self.closed;
        if self.waiting() > 0 || self.has_small() || !(idle || ended) {
            return false;
        }
        for path in &mut self.paths {
            path.ring.shrink();
            path.given_up = Default::default();
        }
        self.queue.shrink_to_fit();
        self.bulk.shrink_to_fit();
        self.resend.shrink();
        self.grants.shrink_to_fit();
        self.control.shrink_to_fit();
        self.oversized = false;
        true
    }
}
