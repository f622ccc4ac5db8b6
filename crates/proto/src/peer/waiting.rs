//! Reports to the owner about silent peers that owe a reply.

use crate::base::types::PeerId;
use crate::node::Node;

/// A silent peer that owes a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The peer.
    pub peer: PeerId,
    /// Silence in ns, including outages of local rails.
    pub silent_ns: u64,
    /// The peer was never heard.
    pub stranger: bool,
    /// Time in ns for which all paths that ever worked have been refused since the peer was last
    /// heard; 0: some path is not refused.
    pub refused_ns: u64,
    /// Mask of local rails that lead to the peer (bit n: rail n).
    pub rails: u32,
}

impl Node {
    /// Calls `report` for each silent peer that has owed an answer for at least `least_ns`.
    pub fn for_each_silent(&self, now: u64, least_ns: u64, mut report: impl FnMut(&Silence)) {
        if !self.cfg.reliable {
            return;
        }
        for conn in self
            .directory
            .peers
            .iter()
            .filter_map(|p| p.conn.as_deref())
        {
            let Some(since) = conn.life.waits_since().filter(|_| !conn.session.is_over()) else {
                continue;
            };
            let silent_ns = now.saturating_sub(since);
            if silent_ns < least_ns || !conn.depends() {
                continue;
            }
            let mut worked = conn.paths.iter().filter(|p| p.is_proven()).peekable();
            let refused = worked.peek().is_some() && worked.all(|p| p.health.is_refused());
            report(&Silence {
                peer: conn.peer,
                silent_ns,
                stranger: conn.life.heard_ns == 0,
                refused_ns: match refused {
                    true => conn.refusals.lasted_ns(now),
                    false => 0,
                },
                rails: (conn.paths.iter()).fold(0, |rails, p| rails | 1 << p.local),
            });
        }
    }
}
