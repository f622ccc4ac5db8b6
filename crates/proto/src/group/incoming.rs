//! State of other members' chunks and broadcasts.

use super::networks::NETWORKS_MAX;
use super::pieces::Pieces;
use super::reachability::Alone;
use crate::base::blocks::BlockSet;
use alloc::collections::BTreeMap;
use marline_wire::Gaps;

/// All receiving state.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub(super) roots: BTreeMap<u16, FromRoot>,
    /// Unfinished broadcasts of others, by number.
    pub(super) broadcasts: BTreeMap<u64, Incoming>,
    /// Bytes of broadcasts that are not posted yet.
    pub(super) early_bytes: u64,
}

/// The chunks of one root.
#[derive(Debug)]
pub(super) struct FromRoot {
    pub(super) got: BlockSet,
    /// Pieces of chunks that are still incomplete.
    pub(super) pieces: Pieces,
    /// All chunks below this number have arrived.
    pub(super) next: u64,
    /// Chunks below are known to have been sent.
    pub(super) high: u64,
    /// By rail: all chunks below this number are known to have been sent, because a later chunk
    /// came by that rail.
    pub(super) network_high: [u64; NETWORKS_MAX],
    /// Chunks from this number on found no room; they are not requested until there is room.
    pub(super) no_room_from: u64,
    /// The last acknowledged number, and broadcasts completed since.
    pub(super) acked: u64,
    pub(super) ended: u32,
    /// The root's memory stays borrowed until all chunks below are acknowledged.
    pub(super) wanted: u64,
    pub(super) ack_at: u64,
    /// Receiver of the next acknowledgement, if not the collector.
    pub(super) ack_to: Option<u16>,
    /// The root itself sent a TAIL: the collector is gone.
    pub(super) orphaned: bool,
    pub(super) nack_at: u64,
    pub(super) tries: u32,
    /// Time at which the requested chunks have been missing for too long.
    pub(super) stalls_at: u64,
    /// Chunks of this root that arrived by unicast.
    pub(super) alone: Alone,
    /// The first chunk that was requested, and the time of the request.
    pub(super) asked: Option<(u64, u64)>,
}

impl Default for FromRoot {
    fn default() -> FromRoot {
        FromRoot {
            got: BlockSet::default(),
            pieces: Pieces::default(),
            next: 0,
            high: 0,
            network_high: [0; NETWORKS_MAX],
            no_room_from: u64::MAX,
            acked: 0,
            ended: 0,
            wanted: 0,
            ack_at: u64::MAX,
            ack_to: None,
            orphaned: false,
            nack_at: u64::MAX,
            tries: 0,
            stalls_at: u64::MAX,
            alone: Alone::default(),
            asked: None,
        }
    }
}

impl FromRoot {
    /// Records received chunks. Returns whether any was new.
    pub(super) fn take(&mut self, number: u64, count: u64) -> bool {
        let fresh = self.got.insert(number, count) > 0;
        self.pieces.remove(number, count);
        let before = self.next;
        while self.got.contains(self.next) {
            self.next += 1;
        }
        if self.next > before {
            self.tries = 0;
        }
        fresh
    }
}

/// A broadcast being received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) root: u16,
    pub(super) total: u64,
    pub(super) here: u64,
    /// Number of the broadcast's first chunk, known once any of its chunks has arrived.
    pub(super) first: Option<u64>,
    /// The operation; `None`: the broadcast arrived before it was posted.
    pub(super) handle: Option<u32>,
}

impl Receiving {
    pub(super) fn deadline(&self) -> Option<u64> {
        let due = |from: &FromRoot| from.ack_at.min(from.nack_at);
        let first = self.roots.values().map(due).min();
        first.filter(|&at| at < u64::MAX)
    }

    /// Roots of posted receives.
    pub(super) fn awaited_roots(&self) -> impl Iterator<Item = u16> + '_ {
        let posted = self.broadcasts.values().filter(|b| b.handle.is_some());
        posted.map(|b| b.root)
    }

    /// All chunks of this root below the returned number are received.
    pub(super) fn next_of(&self, root: u16) -> u64 {
        self.roots.get(&root).map_or(0, |from| from.next)
    }

    /// Lowest chunk number among this root's broadcasts that are not posted yet.
    pub(super) fn first_early_of(&self, root: u16) -> u64 {
        let early = self.broadcasts.values().filter(|b| b.root == root);
        let early = early.filter(|b| b.handle.is_none());
        early.filter_map(|b| b.first).min().unwrap_or(u64::MAX)
    }

    pub(super) fn operations(&self) -> usize {
        self.awaited_roots().count()
    }

    pub(super) fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let set = |from: &FromRoot| from.got.heap_bytes() + from.pieces.heap_bytes();
        let sets: usize = self.roots.values().map(set).sum();
        let roots = self.roots.len() * size_of::<(u16, FromRoot)>();
        sets + roots + self.broadcasts.len() * size_of::<(u64, Incoming)>()
    }
}

impl FromRoot {
    pub(super) fn has_gaps(&self) -> bool {
        self.next < self.high.min(self.no_room_from)
    }

    /// Returns whether the first missing chunk may still be in flight on one of these rails (bit
    /// mask): no later chunk has come by that rail.
    pub(super) fn may_come(&self, networks: u8) -> bool {
        let mut highs = self.network_high.iter().enumerate();
        highs.any(|(network, high)| networks >> network & 1 == 1 && *high <= self.next)
    }

    /// The missing chunks: the numbers of the first ones, the number of missing chunks, and the
    /// number of all chunks.
    pub(super) fn gaps(&self) -> Gaps {
        let mut gaps = Gaps::default();
        let end = self.high.min(self.no_room_from);
        let all = self.next..end;
        for number in all.filter(|&number| !self.got.contains(number)) {
            gaps.push(number);
            gaps.missing = gaps.missing.saturating_add(1);
        }
        gaps.of = end.saturating_sub(self.next).min(u16::MAX as u64) as u16;
        gaps
    }
}
