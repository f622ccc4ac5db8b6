//! Peers that owe an answer and are silent, as the owner is told of them while it waits.

use crate::base::types::PeerId;
use crate::node::Node;

/// A peer that owes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Who.
    pub peer: PeerId,
    /// For how long, in ns, our own rails' outages included.
    pub silent_ns: u64,
    /// The peer was never heard.
    pub stranger: bool,
    /// Every path that has worked was refused since it was heard: for how long, in ns; else 0.
    pub refused_ns: u64,
    /// Our rails that lead to it (bit n: rail n).
    pub rails: u32,
}

impl Node {
    /// Tells of each peer that owes an answer for so long at least.
    pub fn for_each_silent(&self, now: u64, least_ns: u64, mut tell: impl FnMut(&Silence)) {
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
            let refused = worked.peek().is_some() && worked.all(|p| p.refused);
            tell(&Silence {
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
