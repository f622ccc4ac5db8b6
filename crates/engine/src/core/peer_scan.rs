//! Reads the counters of all peers for the page: of many peers, a part at each update, since the
//! engine's lock is held meanwhile.

use crate::core::peer_rows::peer_row;
use crate::stats::page::PEERS_MAX;
use crate::stats::rows::{PeerRow, PeerState};
use marline_proto::{Node, PeerId};

/// Peers read at each update: as many as have rows.
pub(crate) const SLICE: usize = PEERS_MAX;

/// Counters of all peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Rows of the first peers.
    pub(crate) rows: Vec<PeerRow>,
    /// Number and sum of all others.
    pub(crate) beyond: (u64, PeerRow),
    /// Most packets of one peer that waited for an ack at the same time.
    pub(crate) queue_max: u64,
    /// Bytes of all connections.
    pub(crate) bytes: usize,
}

impl Peers {
    fn add(&mut self, node: &Node, peer: PeerId) {
        self.bytes += node.conn_bytes(peer);
        let state = match node.peer_dead(peer) {
            true => PeerState::Dead,
            false if node.peer_gone(peer) => PeerState::Closed,
            false => PeerState::Alive,
        };
        let named = self.rows.len() < PEERS_MAX;
        node.for_peer(peer, |peer, id, stats, paths| {
            self.queue_max = self.queue_max.max(stats.queue_max);
            let mut row = PeerRow {
                state,
                ..peer_row(node, (peer, id), named, stats, paths)
            };
            if named {
                return self.rows.push(row);
            }
            row.drop_idle_paths();
            self.beyond.0 += 1;
            self.beyond.1.merge(&row);
        });
    }
}

/// A scan over the peers of all endpoints.
#[derive(Debug, Default)]
pub(crate) struct PeerScan {
    /// The counters of the scan under way, and its place: endpoint and peer.
    next: Peers,
    at: (usize, usize),
    /// The counters of the last whole scan.
    last: Option<Peers>,
}

impl PeerScan {
    /// Reads up to `most` further peers, not beyond the end of a scan.
    pub(crate) fn advance(&mut self, nodes: &[Option<&Node>], most: usize) {
        let mut left = most;
        while let Some(node) = nodes.get(self.at.0) {
            let known = node.map_or(0, Node::peers_known);
            while let Some(node) = node.filter(|_| self.at.1 < known) {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.next.add(node, PeerId(self.at.1 as u32));
                self.at.1 += 1;
            }
            self.at = (self.at.0 + 1, 0);
        }
        self.at = (0, 0);
        self.last = Some(std::mem::take(&mut self.next));
    }

    /// Begins anew and reads all peers.
    pub(crate) fn whole(&mut self, nodes: &[Option<&Node>]) {
        (self.next, self.at) = (Peers::default(), (0, 0));
        self.advance(nodes, usize::MAX);
    }

    /// The counters of the last whole scan, or of the first peers before there is one.
    pub(crate) fn peers(&self) -> &Peers {
        self.last.as_ref().unwrap_or(&self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pairing::ByKind;
    use marline_proto::{Config, RailSpec};
    use marline_wire::Address;

    /// A node that has begun to speak to so many peers.
    fn crowd(peers: usize) -> Node {
        let rails: Vec<RailSpec> = Vec::new();
        let mut node = Node::new(Config::default(), (1, 1, 1), rails, &ByKind);
        for n in 0..peers as u64 {
            let peer = node.peer(&Address::new(1_000 + n, 7, &[]));
            node.meet(peer);
        }
        node
    }

    /// Regression: each update read all peers under the lock, ten times a second.
    #[test]
    fn an_update_reads_a_part_of_many_peers() {
        let count = 3 * SLICE + 100;
        let (many, few) = (crowd(count), crowd(5));
        let nodes = [Some(&many), None, Some(&few)];
        let mut scan = PeerScan::default();
        for slice in 1..=3 {
            scan.advance(&nodes, SLICE);
            assert_eq!(scan.at, (0, slice * SLICE));
        }
        let first = scan.peers();
        assert_eq!(
            (first.rows.len(), first.beyond.0),
            (PEERS_MAX, 2 * PEERS_MAX as u64)
        );
        scan.advance(&nodes, SLICE);
        let all = scan.peers();
        assert_eq!(all.rows.len() as u64 + all.beyond.0, count as u64 + 5);
        assert!(all.bytes > 0 && scan.at == (0, 0));
        scan.advance(&nodes, SLICE);
        assert_eq!(scan.at, (0, SLICE));
        scan.whole(&nodes);
        assert_eq!(
            (scan.at, scan.peers().beyond.0),
            ((0, 0), (count + 5 - PEERS_MAX) as u64)
        );
    }

    #[test]
    fn few_peers_are_read_at_once() {
        let node = crowd(SLICE);
        let mut scan = PeerScan::default();
        scan.advance(&[Some(&node)], SLICE);
        let all = scan.peers();
        assert_eq!((all.rows.len(), all.beyond.0), (SLICE, 0));
    }
}
