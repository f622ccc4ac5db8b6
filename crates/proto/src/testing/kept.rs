//! Counts of retained state other than messages: packets in flight, queued retransmissions, and
//! deadlines. The simulator compares the counts with bounds.

use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;

/// Numbers of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Packets of one path that wait for an ack; the maximum over paths. (A lost packet keeps all
    /// later packets in the ring until it is declared lost: thousands on a fast path.)
    pub packets: usize,
    /// Frames of one peer in the retransmission queue; the maximum over peers.
    pub resends: usize,
    /// Packets and frames retained for dead peers.
    pub dead: usize,
    /// Remote reads that wait for their answer.
    pub reads: usize,
    /// Deadlines, including replaced ones.
    pub deadlines: usize,
    /// Peers that the node knows.
    pub peers: usize,
}

impl Node {
    /// Counts retained state, over all paths of all peers.
    pub fn kept(&self) -> Retained {
        let mut kept = Retained {
            deadlines: self.run_queue.deadlines.len(),
            peers: self.directory.peers.len() - self.directory.departed.free(),
            ..Retained::default()
        };
        for conn in self.directory.conns() {
            kept.add(conn);
        }
        kept
    }
}

impl Retained {
    fn add(&mut self, conn: &Conn) {
        let in_rings = |p: &Path| (p.ring.next_number() - p.ring.first()) as usize;
        let waiting = conn.paths.iter().map(|p| p.ring.waiting() as usize);
        if conn.session.dead {
            let frames = conn.tx.resend.len() + conn.tx.control.len() + conn.tx.grants.len();
            self.dead += frames + conn.paths.iter().map(in_rings).sum::<usize>();
        }
        self.packets = self.packets.max(waiting.max().unwrap_or(0));
        self.resends = self.resends.max(conn.tx.resend.len());
        self.reads += conn.rx.pending_reads.len();
    }
}
