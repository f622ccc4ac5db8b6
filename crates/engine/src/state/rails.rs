//! The rails, and what waits for each of them.

use crate::memory::autotune::Autotune;
use crate::state::write::{OutstandingWrite, PendingWrite, WriteNotice};
use crate::stats::RailCounters;
use marline_rails::{Piece, RailTx};
use marline_wire::{RailAddr, PACKET_MAX};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// After so long the rail is given up, as one whose writes do not end.
pub(crate) const STUCK_NS: u64 = 100_000_000;
/// The thread waits at least so long between two tries.
const PAUSE_NS: u64 = 20_000;

/// A write that is not over after so long is given up with its rail: ten times what 64 KiB take
/// behind a full queue of a slow rail, and much less than peers wait.
pub(crate) const WRITE_NS: u64 = STUCK_NS;

/// Keys of granted memory: (rail, key) by (endpoint index, inbound name).
pub type Rkeys = BTreeMap<(u32, u64), Vec<(u8, u64)>>;

/// A rail with what the engine keeps of it.
pub struct RailState<T> {
    /// Sending half.
    pub tx: T,
    /// Interface name, for people.
    pub name: String,
    /// Counters.
    pub counters: RailCounters,
    /// A batch that the kernel had no room for.
    pub pending: Option<Pending>,
    /// It waits for room.
    pub backpressure: Option<Backpressure>,
    /// When it was last given up for having none.
    pub stuck_ns: Option<u64>,
    /// A packet that tells of a direct write, and is to leave with the next one or after it.
    pub notice: Option<WriteNotice>,
    /// Writes that the rail has not done with, oldest first.
    pub outstanding: Vec<OutstandingWrite>,
    /// Time to try again after an error of the rail.
    pub retry_at: Option<u64>,
    /// Length of the packets of the last batch received.
    pub segment: usize,
    /// Datagrams of a direct write, as its nodes know it.
    pub direct_datagrams: usize,
    /// Bytes of direct writes that may still come in parts, and until when.
    pub strays: (usize, u64),
    /// Link state as last told.
    pub up: bool,
}

/// A batch (or a write with its packet) that a rail had no room for.
pub struct Pending {
    /// The packets.
    pub bytes: Vec<u8>,
    /// Length of each.
    pub segment: usize,
    /// Where to.
    pub to: RailAddr,
    /// Source-port flow.
    pub flow: u8,
    /// The write that the packet tells of.
    pub write: Option<PendingWrite>,
}

/// How long a rail has had no room.
#[derive(Clone, Copy, Debug)]
pub struct Backpressure {
    pub(crate) since_ns: u64,
    pub(crate) try_ns: u64,
    pub(crate) rerouted: bool,
}

impl Backpressure {
    /// When to try again, at the latest.
    pub(crate) fn deadline(&self) -> u64 {
        self.try_ns + PAUSE_NS
    }
}

/// All rails of an engine.
pub struct Rails<T> {
    pub(crate) list: Vec<RailState<T>>,
    /// Rails that have no room now, bit n for rail n.
    pub(crate) full_mask: u32,
    /// Memory that peers may write into.
    pub(crate) rkeys: Rkeys,
    /// Names of writes so far.
    pub(crate) write_token: u64,
    /// Direct writes are summed before they leave, or after it.
    pub(crate) sum_first: Autotune,
    /// The memory that the write under hand reads; empty between writes, kept for its room.
    pub(crate) pieces: Vec<Piece>,
    /// An empty buffer for the packet of the next write.
    pub(crate) spare: Vec<u8>,
}

impl<T> Deref for Rails<T> {
    type Target = [RailState<T>];

    #[inline]
    fn deref(&self) -> &[RailState<T>] {
        &self.list
    }
}

impl<T> DerefMut for Rails<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [RailState<T>] {
        &mut self.list
    }
}

impl<T: RailTx> Rails<T> {
    /// Rails of these names and sending halves.
    pub(crate) fn new(rails: Vec<(String, T)>) -> Rails<T> {
        Rails {
            list: rails.into_iter().map(RailState::new).collect(),
            full_mask: 0,
            rkeys: Rkeys::new(),
            write_token: 0,
            sum_first: Autotune::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Takes the buffer of a packet that has left, for that of the next write.
    pub(crate) fn reuse(&mut self, mut packet: Vec<u8>) {
        packet.clear();
        self.spare = packet;
    }

    /// Ends the registration of an inbound message's memory.
    pub(crate) fn revoke(&mut self, of: (u32, u64)) {
        for (rail, key) in self.rkeys.remove(&of).unwrap_or_default() {
            self.list[rail as usize].tx.revoke(key);
        }
    }

    /// Ends the registrations of those endpoints (by index) that satisfy `of`.
    pub(crate) fn revoke_all(&mut self, of: impl Fn(u32) -> bool) {
        let keys: Vec<_> = (self.rkeys.keys().copied()).filter(|k| of(k.0)).collect();
        keys.into_iter().for_each(|key| self.revoke(key));
    }
}

impl<T> RailState<T> {
    fn new((name, tx): (String, T)) -> RailState<T> {
        RailState {
            tx,
            name,
            counters: RailCounters::default(),
            pending: None,
            backpressure: None,
            stuck_ns: None,
            notice: None,
            strays: (0, 0),
            direct_datagrams: 0,
            outstanding: Vec::new(),
            retry_at: None,
            segment: PACKET_MAX,
            up: true,
        }
    }

    /// When `tick` has something to do for the rail.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let written = self.outstanding.first().map(|w| w.since_ns + WRITE_NS);
        let tried = self.backpressure.map(|full| full.deadline());
        [self.retry_at, written, tried].into_iter().flatten().min()
    }
}
