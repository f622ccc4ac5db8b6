//! Counts of what a node keeps beside messages: packets that may be sent again, frames that will
//! be, and deadlines. For the simulator, which holds it against bounds.

use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;

/// Numbers of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Packets of one path that wait for an ack; the most of any path. (Those behind the oldest of
    /// them stay in the ring with it, until it is declared lost: on a fast path thousands.)
    pub packets: usize,
    /// Frames of one peer that are to be sent again; the most of any peer.
    pub resends: usize,
    /// Packets and frames of all peers that are dead.
    pub dead: usize,
    /// Remote reads that wait for their answer.
    pub reads: usize,
    /// Deadlines, with such as an earlier one replaced.
    pub deadlines: usize,
    /// Peers that the node knows.
    pub peers: usize,
}

impl Node {
    /// Counts what is kept; takes a look at each path of each peer.
    pub fn kept(&self) -> Kept {
        let mut kept = Kept {
            deadlines: self.agenda.deadlines.len(),
            peers: self.directory.peers.len() - self.directory.departed.free(),
            ..Kept::default()
        };
        for conn in self.directory.conns() {
            kept.add(conn);
        }
        kept
    }
}

impl Kept {
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
