//! Other processes at an address that refuses a peer. A firewall that rejects everything refuses
//! them as well; a host refuses only the process that is gone. So packets to them, if acknowledged,
//! tell the two apart. (Hearing them is not enough: a firewall may reject incoming packets and pass
//! outgoing ones.)

use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::state::conn::Conn;
use crate::state::context::Context;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Siblings probed for each refusal: more than one, as one may be stopped or about to end as well.
const ASKED: usize = 2;

/// A path to another process at the same address.
struct Sibling {
    peer: PeerId,
    at: usize,
    /// When the newest packet left that reached this process.
    reached_ns: u64,
}

impl Context<'_> {
    /// Every path of a peer is refused: probes other processes at its addresses, and notes packets
    /// that reached them since the refusals began.
    pub(crate) fn ask_siblings(&mut self, now: u64, conn: &mut Conn) {
        let mut siblings = self.siblings(conn);
        siblings.sort_unstable_by_key(|s| Reverse(s.reached_ns));
        if let Some(newest) = siblings.first() {
            let trusts = self.cfg.errs(Mutation::TrustSiblings);
            let reached_ns = if trusts { now } else { newest.reached_ns };
            conn.refusals.note_reached(reached_ns);
        }
        for sibling in siblings.iter().take(ASKED) {
            let Some(asked) = self.directory.conn_mut(sibling.peer) else {
                continue;
            };
            asked.paths[sibling.at].probing.request();
            self.run_queue.mark_ready(asked);
            self.touch(sibling.peer, now);
        }
    }

    /// Paths to other processes that have worked, from the same local rail and to the same address
    /// as a refused path of this peer. Looks only at peers on the hosts of these addresses.
    fn siblings(&self, conn: &Conn) -> Vec<Sibling> {
        let refused = conn.paths.iter().filter(|path| path.health.is_refused());
        let mut hosts: Vec<u64> = refused
            .map(|p| self.local.pairing.host_hash(&p.to))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let peers = hosts
            .iter()
            .flat_map(|&host| self.directory.hosts.peers_of(host));
        let mut peers: Vec<PeerId> = peers.collect();
        peers.sort_unstable_by_key(|peer| peer.0);
        peers.dedup();
        let sibling = |peer| self.sibling(conn, peer);
        peers.into_iter().filter_map(sibling).collect()
    }

    /// The path to a peer by the local rail and to the address of a refused path, if it has worked.
    fn sibling(&self, conn: &Conn, peer: PeerId) -> Option<Sibling> {
        let pairing = self.local.pairing;
        let trusts = self.cfg.errs(Mutation::TrustSiblings);
        // A firewall that is switched on and off refuses the siblings too, from time to time.
        let passes = |c: &&Conn| trusts || !c.refusals.came_since(&conn.refusals);
        let other = self.directory.conn(peer).filter(passes)?;
        if other.session.is_over() {
            return None;
        }
        let mut paths = other.paths.iter();
        let at = paths.position(|p| {
            let mut refused = conn.paths.iter().filter(|r| r.health.is_refused());
            p.is_proven()
                && (trusts || !p.rail_down())
                && refused.any(|r| r.local == p.local && pairing.same_host(&r.to, &p.to))
        })?;
        Some(Sibling {
            peer,
            at,
            reached_ns: other.paths[at].loss.newest_acked_sent_ns(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Delivery;
    use crate::base::pairing::Pairing;
    use crate::state::context::testing::Parts;
    use crate::state::health_table::Input;
    use crate::state::path::{LocalRail, Path, Policy};
    use core::sync::atomic::{AtomicUsize, Ordering};
    use marline_wire::{RailAddr, RailKind};

    /// A pairing whose hosts are the first two bytes of addresses; counts address comparisons.
    struct Counting(AtomicUsize);

    impl Pairing for Counting {
        fn pairs(&self, _: &[RailAddr], _: &[RailAddr]) -> Vec<(usize, usize)> {
            Vec::new()
        }
        fn reaches(&self, _: &RailAddr, _: &RailAddr) -> bool {
            true
        }
        fn same_network(&self, _: &RailAddr, _: &RailAddr) -> bool {
            true
        }
        fn same_host(&self, a: &RailAddr, b: &RailAddr) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            a.bytes()[..2] == b.bytes()[..2]
        }
        fn host_hash(&self, addr: &RailAddr) -> u64 {
            u64::from(addr.bytes()[0]) << 8 | u64::from(addr.bytes()[1])
        }
        fn same_end(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
    }

    const PEERS: u32 = 10_000;
    const ON_A_HOST: u32 = 10;

    /// A node's parts with peers that have answered, with one path each.
    fn parts(pairing: &'static Counting) -> Parts {
        let mut parts = Parts::with_peers(u64::from(PEERS));
        parts.local.pairing = pairing;
        let rail = LocalRail {
            datagram_max: 1_472,
            policy: Policy::new(0, Delivery::DATAGRAMS, false),
        };
        for index in 0..PEERS {
            let host = ((index / ON_A_HOST) as u16).to_be_bytes();
            let to = RailAddr::new(RailKind::Udp4, &[host[0], host[1], index as u8]);
            let peer = PeerId(index);
            if let Some(conn) = parts.directory.conn_mut(peer) {
                let at = conn.push_path(Path::new(0, &rail, to));
                conn.paths[at].bring_up(1, Input::Answered);
            }
            parts.directory.enter_hosts(&parts.local, peer);
        }
        parts
    }

    #[test]
    fn a_refusal_looks_at_the_processes_of_its_host_alone() {
        static PAIRING: Counting = Counting(AtomicUsize::new(0));
        let mut parts = parts(&PAIRING);
        let mut conn = parts.directory.peers[4_321].conn.take().expect("opened");
        conn.paths[0].health.on_refusal();
        let found = parts.context().siblings(&conn);
        let peers: Vec<u32> = found.iter().map(|sibling| sibling.peer.0).collect();
        let expected: Vec<u32> = (4_320..4_330).filter(|&peer| peer != 4_321).collect();
        assert_eq!(peers, expected);
        assert_eq!(PAIRING.0.load(Ordering::Relaxed), expected.len());
    }

    #[test]
    fn a_peer_that_moved_or_left_is_not_on_its_old_host() {
        static PAIRING: Counting = Counting(AtomicUsize::new(0));
        let mut parts = parts(&PAIRING);
        let mut conn = parts.directory.peers[7].conn.take().expect("opened");
        let old = conn.paths[0].to;
        conn.paths[0].to = RailAddr::new(RailKind::Udp4, &[255, 255, 0]);
        let hosts = &mut parts.directory.hosts;
        hosts.enter(&PAIRING, &conn);
        hosts.leave(&PAIRING, &conn, &old);
        assert!(hosts.peers_of(0).all(|peer| peer != conn.peer));
        assert!(hosts.peers_of(0xffff).eq([conn.peer]));
        hosts.forget(&PAIRING, &conn);
        assert_eq!(hosts.peers_of(0xffff).count(), 0);
        assert_eq!(hosts.peers_of(0).count(), ON_A_HOST as usize - 1);
    }
}
