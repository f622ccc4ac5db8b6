//! Chunks and broadcasts of others, as far as they are known.

use super::carried::Alone;
use super::lanes::LANES_MAX;
use super::pieces::Pieces;
use crate::base::granules::GranuleSet;
use alloc::collections::BTreeMap;
use marline_wire::Gaps;

/// All that comes in.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub(super) roots: BTreeMap<u16, FromRoot>,
    /// Broadcasts of others that are under way, by number.
    pub(super) broadcasts: BTreeMap<u64, Incoming>,
    /// Bytes of those that were not posted yet.
    pub(super) early_bytes: u64,
}

/// The chunks of one root.
#[derive(Debug)]
pub(super) struct FromRoot {
    pub(super) got: GranuleSet,
    /// Of those that are not here, the pieces that are.
    pub(super) pieces: Pieces,
    /// All chunks below are here.
    pub(super) next: u64,
    /// Chunks below are known to have been sent.
    pub(super) high: u64,
    /// By lane: chunks below are known to have been sent, as one came by it.
    pub(super) lane_high: [u64; LANES_MAX],
    /// Chunks from here on found no room: nobody asks for them before there is some.
    pub(super) no_room_from: u64,
    /// The last number that was acknowledged, and broadcasts that arrived since.
    pub(super) told: u64,
    pub(super) ended: u32,
    /// The root's memory waits for the acknowledgement of all below.
    pub(super) wanted: u64,
    pub(super) ack_at: u64,
    /// Whom the next acknowledgement answers, if that is not the collector.
    pub(super) ack_to: Option<u16>,
    /// The root itself has asked: the collector is gone.
    pub(super) orphaned: bool,
    pub(super) nack_at: u64,
    pub(super) tries: u32,
    /// When what is asked for has been asked for too long.
    pub(super) stalls_at: u64,
    /// Those that came to this member alone.
    pub(super) alone: Alone,
    /// The first chunk that was asked for once, and when.
    pub(super) asked: Option<(u64, u64)>,
}

impl Default for FromRoot {
    fn default() -> FromRoot {
        FromRoot {
            got: GranuleSet::default(),
            pieces: Pieces::default(),
            next: 0,
            high: 0,
            lane_high: [0; LANES_MAX],
            no_room_from: u64::MAX,
            told: 0,
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
    /// Chunks are here, from a number on; whether that is news.
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

/// A broadcast on its way in.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) root: u16,
    pub(super) total: u64,
    pub(super) here: u64,
    /// Number of its first chunk, once one has come.
    pub(super) first: Option<u64>,
    /// The operation; none yet: the broadcast came early.
    pub(super) handle: Option<u32>,
}

impl Receiving {
    pub(super) fn deadline(&self) -> Option<u64> {
        let due = |from: &FromRoot| from.ack_at.min(from.nack_at);
        let first = self.roots.values().map(due).min();
        first.filter(|&at| at < u64::MAX)
    }

    /// Roots of receives that wait.
    pub(super) fn awaited_roots(&self) -> impl Iterator<Item = u16> + '_ {
        let posted = self.broadcasts.values().filter(|b| b.handle.is_some());
        posted.map(|b| b.root)
    }

    /// All chunks of this root below the answer are here.
    pub(super) fn next_of(&self, root: u16) -> u64 {
        self.roots.get(&root).map_or(0, |from| from.next)
    }

    /// Number of the first chunk of the broadcasts of this root that came before they were posted.
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
    pub(super) fn lacks_some(&self) -> bool {
        self.next < self.high.min(self.no_room_from)
    }

    /// The first missing chunk may be under way on a lane, of these (bits) that carry multicast,
    /// by which nothing that left after it has come yet.
    pub(super) fn may_come(&self, lanes: u8) -> bool {
        let mut highs = self.lane_high.iter().enumerate();
        highs.any(|(lane, high)| lanes >> lane & 1 == 1 && *high <= self.next)
    }

    /// The missing chunks: the first of them, and how many of how many.
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
