//! Run queue of a node: peers with packets to send, peers that wait for room, and deadlines.

use crate::base::types::PeerId;
use crate::state::conn::Conn;
use crate::state::directory::Directory;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Deadlines kept beyond one per peer before pruning.
const DEADLINES_SPARE: usize = 64;

/// The run queue. [`crate::state::conn::Listed`] says which lists a peer is in.
#[derive(Debug, Default)]
pub struct RunQueue {
    pub ready: VecDeque<PeerId>,
    /// Peers that wait for a rail to have room.
    pub stalled: Vec<PeerId>,
    pub deadlines: BinaryHeap<Reverse<(u64, u32)>>,
}

impl RunQueue {
    /// Queues the peer for `poll_transmit`.
    #[inline]
    pub fn mark_ready(&mut self, conn: &mut Conn) {
        if !conn.listed.ready {
            conn.listed.ready = true;
            self.ready.push_back(conn.peer);
        }
    }

    /// Parks all peers with packets to send, since no rail has room.
    #[cold]
    pub fn park(&mut self, directory: &mut Directory) {
        for peer in core::mem::take(&mut self.ready) {
            let Some(conn) = directory.conn_mut(peer) else {
                continue;
            };
            conn.listed.ready = false;
            if !core::mem::replace(&mut conn.listed.stalled, true) {
                self.stalled.push(peer);
            }
        }
    }

    /// Queues all parked peers again, as a rail has room.
    #[cold]
    pub fn unpark(&mut self, directory: &mut Directory) {
        for peer in core::mem::take(&mut self.stalled) {
            if let Some(conn) = directory.conn_mut(peer) {
                conn.listed.stalled = false;
                self.mark_ready(conn);
            }
        }
    }

    /// Drops deadlines that an earlier one replaced. Each peer has one valid deadline. But an owed
    /// answer replaces the distant deadline of the peer's silence by a nearer one, and the distant
    /// one would stay in the queue until due: with 10,000 messages a second, 10,000 entries per
    /// second of the timeout.
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
