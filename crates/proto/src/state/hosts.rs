//! Peers by host: the peers that have a rail on each host.

use crate::base::pairing::Pairing;
use crate::base::types::PeerId;
use crate::state::conn::Conn;
use alloc::collections::BTreeSet;
use marline_wire::RailAddr;

/// Pairs of a host, by its hash ([`Pairing::host_hash`]), and a peer with a path to it. Two hosts
/// may have the same hash, so readers also compare addresses.
#[derive(Debug, Default)]
pub(crate) struct Hosts(BTreeSet<(u64, u32)>);

impl Hosts {
    /// Bytes of heap in use, without the nodes of the tree.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<(u64, u32)>()
    }

    /// Enters the hosts of all paths of a connection.
    pub(crate) fn enter(&mut self, pairing: &dyn Pairing, conn: &Conn) {
        let hosts = conn.paths.iter().map(|path| pairing.host_hash(&path.to));
        self.0.extend(hosts.map(|host| (host, conn.peer.0)));
    }

    /// Removes the host of an address, unless another path of the connection leads to it.
    pub(crate) fn leave(&mut self, pairing: &dyn Pairing, conn: &Conn, addr: &RailAddr) {
        let host = pairing.host_hash(addr);
        let mut hosts = conn.paths.iter().map(|path| pairing.host_hash(&path.to));
        if !hosts.any(|other| other == host) {
            self.0.remove(&(host, conn.peer.0));
        }
    }

    /// Removes a connection.
    pub(crate) fn forget(&mut self, pairing: &dyn Pairing, conn: &Conn) {
        for path in &conn.paths {
            self.0.remove(&(pairing.host_hash(&path.to), conn.peer.0));
        }
    }

    /// The peers on hosts with this hash, in order.
    pub(crate) fn peers_of(&self, host: u64) -> impl Iterator<Item = PeerId> + '_ {
        let peers = self.0.range((host, 0)..=(host, u32::MAX));
        peers.map(|&(_, peer)| PeerId(peer))
    }
}
