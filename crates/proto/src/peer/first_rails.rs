//! Selection of the rails in an endpoint's address.

use crate::base::pairing::Pairing;
use crate::base::types::{Event, PeerId};
use crate::node::Node;
use alloc::vec::Vec;
use marline_wire::{Address, RailAddr, RailKind};

/// The rails in an address, in the order in which peers use them for first contact.
///
/// Kinds with the widest reach come first ([`RailKind::BY_REACH`]), and within a kind the rails of
/// lower index, as users list their preferred rails first. One rail of each network comes before a
/// second rail of any network: first contact must succeed while one network is down. An address has
/// room for at least two networks; the remaining room is filled in the same order.
fn first_rails(rails: &[RailAddr], pairing: &dyn Pairing) -> Vec<RailAddr> {
    let mut wanted: Vec<&RailAddr> = rails.iter().filter(|rail| rail.is_some()).collect();
    let reach = |kind| RailKind::BY_REACH.iter().position(|k| *k == kind);
    wanted.sort_by_key(|rail| reach(rail.kind));
    let mut chosen: Vec<RailAddr> = Vec::new();
    for any_network in [false, true] {
        for &rail in &wanted {
            let known = chosen.contains(rail);
            let near = chosen.iter().any(|c| pairing.same_network(c, rail));
            if !known && (any_network || !near) && Address::has_room(&chosen, rail) {
                chosen.push(*rail);
            }
        }
    }
    chosen
}

impl Node {
    /// The address blob for peers: identity and the rails for first contact.
    pub fn address(&self) -> Address {
        let all = self.local.named_addrs();
        let rails = first_rails(&all, self.local.pairing);
        let mut address = Address::new(self.local.id, self.local.token, &rails);
        address.has_more = rails.len() < all.len() || self.local.awaits();
        address.key_mark = self.cfg.key_mark;
        address.set_versions(self.cfg.versions);
        address
    }
}

impl Node {
    /// Declares a peer dead at once if no local rail reaches one of its rails, and neither side has
    /// further rails or waits for some. A timeout would report it later and with less detail.
    pub(crate) fn end_unreachable(&mut self, peer: PeerId) {
        let named = self.peer_address(peer).is_some_and(|a| !a.has_more);
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        let cut_off = conn.paths.is_empty() && !conn.session.is_over() && !conn.session.own;
        if !cut_off || !named || self.local.awaits() {
            return;
        }
        conn.session.dead = true;
        self.stats.peers_dead += 1;
        self.events.push_back(Event::PeerUnreachable { peer });
        let now = self.descheduled.last_poll_ns;
        self.directory.departs(peer, now);
        self.end_peer(now, peer, None);
        let (incoming, mut ctx) = self.incoming();
        incoming.note_death(&mut ctx, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first byte of an address is its network.
    struct ByFirstByte;

    impl Pairing for ByFirstByte {
        fn pairs(&self, _: &[RailAddr], _: &[RailAddr]) -> Vec<(usize, usize)> {
            Vec::new()
        }
        fn reaches(&self, a: &RailAddr, b: &RailAddr) -> bool {
            a.kind == b.kind
        }
        fn same_network(&self, a: &RailAddr, b: &RailAddr) -> bool {
            a.bytes().first() == b.bytes().first()
        }
        fn same_host(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
        fn host_hash(&self, _: &RailAddr) -> u64 {
            0
        }
        fn same_end(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
    }

    /// Rails of these kinds, networks and lengths, indexed in order. Returns the selected indices.
    fn named(rails: &[(RailKind, u8, usize)]) -> Vec<u8> {
        let rail = |(index, &(kind, network, len)): (usize, &(RailKind, u8, usize))| {
            let mut addr = RailAddr::new(kind, &[network; 24][..len]);
            (addr.index, addr.datagram_max) = (index as u8, 1_472);
            addr
        };
        let rails: Vec<RailAddr> = rails.iter().enumerate().map(rail).collect();
        let chosen = first_rails(&rails, &ByFirstByte);
        let address = Address::new(1, 2, &chosen);
        assert!(address.rails().iter().eq(chosen.iter().copied()));
        chosen.iter().map(|rail| rail.index).collect()
    }

    const UDP: (RailKind, usize) = (RailKind::Udp4, 7);
    const UDP6: (RailKind, usize) = (RailKind::Udp6, 19);

    fn of(kind: (RailKind, usize), network: u8) -> (RailKind, u8, usize) {
        (kind.0, network, kind.1)
    }

    #[test]
    fn up_to_four_of_ipv4_and_two_of_ipv6_are_named() {
        let four = [0, 1, 2, 3, 4].map(|n| of(UDP, n));
        assert_eq!(named(&four), [0, 1, 2, 3]);
        let two = [0, 1, 2].map(|n| of(UDP6, n));
        assert_eq!(named(&two), [0, 1]);
        assert_eq!(named(&[of(UDP6, 0), of(UDP, 1), of(UDP, 2)]), [1, 2, 0]);
    }

    #[test]
    fn unlike_networks_come_before_second_rails_of_one() {
        let rails = [of(UDP, 0), of(UDP, 0), of(UDP, 1), of(UDP, 1), of(UDP, 2)];
        assert_eq!(named(&rails), [0, 2, 4, 1]);
        let rails = [of(UDP6, 0), of(UDP6, 0), of(UDP6, 1)];
        assert_eq!(named(&rails), [0, 2]);
    }

    #[test]
    fn kinds_that_anyone_can_reach_come_first() {
        let shm = (RailKind::Shm, 9, 16);
        let rc = (RailKind::Rc, 8, 19);
        assert_eq!(named(&[shm, rc, of(UDP, 0), of(UDP, 1)]), [2, 3, 1]);
        assert_eq!(named(&[shm, of(UDP, 0), of(UDP, 0)]), [1, 0, 2]);
        assert_eq!(named(&[shm]), [0], "better than none");
    }
}
