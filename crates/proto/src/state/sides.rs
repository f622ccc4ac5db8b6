//! The two directions of a connection.

use crate::base::blocks::BlockSet;
use crate::base::slab::Key;
use crate::state::resends::Resends;
use crate::state::sent_packets::FrameRef;
use alloc::collections::{BTreeMap, VecDeque};

/// Everything sent to the peer.
#[derive(Debug, Default)]
pub struct SendSide {
    pub next_number: u64,
    pub queue: VecDeque<Key>,
    pub bulk: VecDeque<Key>,
    pub resend: Resends,
    pub grants: VecDeque<Key>,
    /// Other control frames: READ, refusals, empty grants, ADVERTISEMENT, CORRUPT.
    pub control: VecDeque<FrameRef>,
    /// Messages that wait for grants or, as eager remote writes, for their answers; and answers to
    /// the peer's READs, by number.
    pub rendezvous: BTreeMap<u32, Key>,
    pub replies: BTreeMap<u32, Key>,
}

impl SendSide {
    /// Bytes of heap in use.
    pub fn heap_bytes(&self) -> usize {
        let queues = self.queue.capacity() + self.bulk.capacity() + self.grants.capacity();
        let frames = self.control.capacity() * size_of::<FrameRef>() + self.resend.bytes();
        let tables = tree(self.rendezvous.len() + self.replies.len(), 12);
        queues * size_of::<Key>() + frames + tables
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.bulk.shrink_to_fit();
        self.resend.shrink();
        self.grants.shrink_to_fit();
        self.control.shrink_to_fit();
    }

    /// Drops all messages.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.bulk.clear();
        self.resend.clear();
        self.rendezvous.clear();
        self.replies.clear();
    }

    /// True if anything is queued except BYE, acks, credit, and messages of which nothing has left.
    #[inline]
    pub fn has_control(&self) -> bool {
        !self.grants.is_empty() || !self.control.is_empty() || !self.resend.is_empty()
    }
}

/// Everything received from the peer.
#[derive(Debug, Default)]
pub struct ReceiveSide {
    /// All messages below this number were matched or queued as unexpected.
    pub next_match: u64,
    pub inbound: BTreeMap<u64, Key>,
    pub next_read: u32,
    /// Number of posted receives that name this peer; they keep it probed.
    pub watchers: u32,
    pub pending_reads: BTreeMap<u32, Key>,
    pub served_reads: BlockSet,
}

impl ReceiveSide {
    /// Bytes of heap in use.
    pub fn heap_bytes(&self) -> usize {
        let tables = tree(self.inbound.len(), 16) + tree(self.pending_reads.len(), 12);
        tables + self.served_reads.heap_bytes()
    }

    /// Expands a 32-bit message number to the 64-bit number nearest to `next_match`.
    pub fn expand(&self, number: u32) -> u64 {
        let near = self.next_match;
        let delta = number.wrapping_sub(near as u32) as i32;
        near.saturating_add_signed(delta as i64)
    }
}

/// Bytes of a B-tree of `len` entries: nodes of eleven entries, none if it is empty.
fn tree(len: usize, entry: usize) -> usize {
    match len {
        0 => 0,
        n => n.div_ceil(11) * (11 * entry + 16),
    }
}
