//! Peers of a node, by number, and departed peers.

use crate::base::types::{PeerId, RecvSpec, Source};
use crate::state::admission::{
    Admission, Standing, READS_MAX, STRANGER_READS_MAX, STRANGER_REPLIES_MAX,
};
use crate::state::conn::Conn;
use crate::state::credit::PromisedCredit;
use crate::state::hosts::Hosts;
use crate::state::local::Local;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use marline_wire::Address;

/// All peers of a node.
#[derive(Debug)]
pub struct Directory {
    pub peers: Vec<Peer>,
    pub by_id: BTreeMap<u64, u32>,
    pub(crate) departed: Departed,
    /// Peers whose memory grew; `reclaim_at`: when to look at them and at departed peers.
    pub oversized: Vec<u32>,
    pub reclaim_at: u64,
    pub promised: PromisedCredit,
    pub(crate) hosts: Hosts,
    pub admission: Admission,
}

impl Directory {
    pub fn new() -> Directory {
        Directory {
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            departed: Departed::default(),
            oversized: Vec::new(),
            reclaim_at: u64::MAX,
            promised: PromisedCredit::default(),
            hosts: Hosts::default(),
            admission: Admission::default(),
        }
    }

    /// The connection to a peer, if there is one.
    #[inline]
    pub fn conn(&self, peer: PeerId) -> Option<&Conn> {
        self.peers.get(peer.0 as usize)?.conn.as_deref()
    }

    #[inline]
    pub fn conn_mut(&mut self, peer: PeerId) -> Option<&mut Conn> {
        self.peers.get_mut(peer.0 as usize)?.conn.as_deref_mut()
    }

    /// Ends the watch over the peer that a cancelled receive names.
    pub(crate) fn unwatch(&mut self, spec: &RecvSpec) {
        let Source::Peer(peer) = spec.source else {
            return;
        };
        if let Some(conn) = self.conn_mut(peer) {
            conn.rx.watchers = conn.rx.watchers.saturating_sub(1);
        }
    }

    /// Enters the hosts of a peer's paths.
    pub(crate) fn enter_hosts(&mut self, local: &Local, peer: PeerId) {
        let entry = self.peers.get(peer.0 as usize);
        if let Some(conn) = entry.and_then(|entry| entry.conn.as_deref()) {
            self.hosts.enter(local.pairing, conn);
        }
    }

    /// Returns whether the owner has named the peer.
    pub fn is_named(&self, peer: PeerId) -> bool {
        let entry = self.peers.get(peer.0 as usize);
        entry.is_some_and(|entry| entry.named)
    }

    /// Returns whether another read of the peer may be served. The bound keeps a peer that takes no
    /// replies from filling memory with them. `keyed`: all peers have proved the job's key.
    pub fn serves_read(&self, peer: PeerId, keyed: bool) -> bool {
        let most = match keyed || self.is_named(peer) {
            true => READS_MAX,
            false => STRANGER_READS_MAX,
        };
        let waiting = |conn: &Conn| conn.tx.replies.len() + conn.tx.control.len();
        self.conn(peer).is_some_and(|conn| waiting(conn) < most)
    }

    /// Returns whether another RPC of the peer may be executed. Only the replies to strangers are
    /// bounded: the queue to a named peer also holds this endpoint's own messages.
    pub fn serves_rpc(&self, peer: PeerId, keyed: bool) -> bool {
        let conn = self.conn(peer);
        keyed
            || self.is_named(peer)
            || conn.is_some_and(|c| c.tx.queue.len() < STRANGER_REPLIES_MAX)
    }

    /// Changes a peer's entry, and updates the counts of admission.
    pub fn change<T>(&mut self, index: u32, change: impl FnOnce(&mut Peer) -> T) -> Option<T> {
        let entry = self.peers.get_mut(index as usize)?;
        let (before, held) = (entry.standing(), entry.held());
        let changed = change(entry);
        self.admission.moves(before, entry.standing());
        self.admission.release(held);
        self.admission.charge(entry.held());
        Some(changed)
    }

    /// All connections.
    pub fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.peers.iter().filter_map(|p| p.conn.as_deref())
    }
}

/// Departed peers, and slots without a peer.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// When to look at which peer again.
    pub(crate) waiting: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) free: Vec<u32>,
    /// Ids of forgotten peers, if packets have tags. Without them a replay of recorded packets
    /// would be a first contact. Only processes with the job's key add ids.
    pub(crate) former: BTreeSet<u64>,
}

impl Departed {
    /// Number of slots without a peer.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// When to look at a departed peer next.
    pub(crate) fn at(&self) -> u64 {
        let next = self.waiting.peek();
        next.map_or(u64::MAX, |Reverse((at, _))| *at)
    }
}

/// A remote endpoint that the node knows; small until it has a connection.
#[derive(Debug)]
pub struct Peer {
    pub address: Address,
    /// The owner has a name for the peer.
    pub named: bool,
    /// The peer departed; only its address is kept.
    pub gone: bool,
    /// For a departed peer: when to check whether more of it can be freed.
    pub look_at_ns: u64,
    /// Bytes of the peer's unexpected messages.
    pub charged: u64,
    pub conn: Option<Box<Conn>>,
}

impl Peer {
    fn standing(&self) -> Standing {
        match self.named || self.address.id == Address::NOBODY.id {
            true => Standing::Free,
            false if self.gone => Standing::Gone,
            false => Standing::Stranger,
        }
    }

    /// Bytes that count against the strangers' share for this peer.
    fn held(&self) -> u64 {
        match self.named {
            true => 0,
            false => self.charged,
        }
    }
}
