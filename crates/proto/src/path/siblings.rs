//! Other processes at an address that refuses a peer. A firewall that rejects everything refuses
//! them as well; a host refuses only the process that is gone. So what is sent to them meanwhile
//! tells the two apart, where it is acknowledged. (To hear them is not enough: a firewall that
//! rejects what comes in lets pass what goes out.)

use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::conn::Conn;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Siblings asked for each refusal: one may be stopped, or about to end as well.
const ASKED: usize = 2;

/// A path to another process at the same address.
struct Sibling {
    peer: PeerId,
    at: usize,
    /// When the newest packet left that arrived there.
    reached_ns: u64,
}

impl Node {
    /// Every path of a peer is refused: other processes at its addresses are asked, and what has
    /// reached them since the refusals began is noted.
    pub(crate) fn ask_siblings(&mut self, now: u64, conn: &mut Conn) {
        let mut siblings = self.siblings(conn);
        siblings.sort_unstable_by_key(|s| Reverse(s.reached_ns));
        if let Some(newest) = siblings.first() {
            let trusts = self.cfg.errs(Mutation::TrustSiblings);
            let reached_ns = if trusts { now } else { newest.reached_ns };
            conn.refusals.note_reached(reached_ns);
        }
        for sibling in siblings.iter().take(ASKED) {
            let Some(mut asked) = self.take(sibling.peer) else {
                continue;
            };
            asked.paths[sibling.at].probing.request();
            self.run_queue.mark_ready(&mut asked);
            self.put(asked);
            self.context().touch(sibling.peer, now);
        }
    }

    /// Paths that have worked to other processes, by the local rail and to the address of a path of
    /// this peer that is refused.
    fn siblings(&self, conn: &Conn) -> Vec<Sibling> {
        let pairing = self.local.pairing;
        let trusts = self.cfg.errs(Mutation::TrustSiblings);
        // A firewall that comes and goes refuses them as well, now and then.
        let passes = |c: &Conn| trusts || !c.refusals.came_since(&conn.refusals);
        let mut found = Vec::new();
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(other) = self
                .conn(peer)
                .filter(|c| !c.session.is_over() && passes(c))
            else {
                continue;
            };
            let mut paths = other.paths.iter();
            let beside = paths.position(|p| {
                let mut refused = conn.paths.iter().filter(|r| r.health.is_refused());
                p.is_proven()
                    && (trusts || !p.rail_down())
                    && refused.any(|r| r.local == p.local && pairing.same_host(&r.to, &p.to))
            });
            found.extend(beside.map(|at| Sibling {
                peer,
                at,
                reached_ns: other.paths[at].loss.newest_acked_sent_ns(),
            }));
        }
        found
    }
}
