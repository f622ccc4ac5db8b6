//! The agenda of a node: which peers have something to send, which wait for room, when is what due.

use crate::base::types::PeerId;
use crate::state::conn::Conn;
use crate::state::directory::{Anyone, Directory};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Deadlines that are kept beside one of each peer: with fewer there is little to gain.
const DEADLINES_SPARE: usize = 64;

/// The list of what is to be done next. [`crate::state::conn::Listed`] says which peers are in it.
#[derive(Debug, Default)]
pub struct Agenda {
    pub ready: VecDeque<PeerId>,
    /// Peers that wait for a rail that has no room.
    pub stalled: Vec<PeerId>,
    pub deadlines: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) anyone: Anyone,
}

impl Agenda {
    /// Queues the peer for `poll_transmit`.
    #[inline]
    pub fn mark_ready(&mut self, conn: &mut Conn) {
        if !conn.listed.ready {
            conn.listed.ready = true;
            self.ready.push_back(conn.peer);
        }
    }

    /// Forgets deadlines that were replaced by earlier ones. A peer has one; but each time that it
    /// owes something the far one of its silence is followed by near ones, and would stay until it
    /// is due: with 10,000 messages a second as many, times the seconds that peers are waited for.
    #[inline]
    pub fn prune_deadlines(&mut self, directory: &Directory) {
        if self.deadlines.len() <= 2 * directory.peers.len() + DEADLINES_SPARE {
            return;
        }
        self.deadlines.clear();
        let armed = directory.conns().filter(|c| c.listed.armed < u64::MAX);
        self.deadlines
            .extend(armed.map(|c| Reverse((c.listed.armed, c.peer.0))));
    }
}
