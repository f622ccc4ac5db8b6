//! Peers of a node, by number, and departed peers.

use crate::base::types::PeerId;
use crate::state::conn::Conn;
use crate::state::credit::PromisedCredit;
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
    /// Peers whose memory grew, and when to look at them and at departed peers.
    pub oversized: Vec<u32>,
    pub reclaim_at: u64,
    pub promised: PromisedCredit,
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

    /// The paths of a link, each by its peer and its index there.
    pub(crate) fn paths_on(&self, rail: usize, link: u32) -> Vec<(PeerId, usize)> {
        let peers = (0..self.peers.len()).map(|index| PeerId(index as u32));
        let on_link = |peer| {
            let mut paths = self.conn(peer)?.paths.iter();
            Some((peer, paths.position(|p| p.is_on(rail, link))?))
        };
        peers.filter_map(on_link).collect()
    }

    /// All connections.
    pub fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.peers.iter().filter_map(|p| p.conn.as_deref())
    }
}

/// Watch over peers on behalf of receives from any source.
#[derive(Debug)]
pub(crate) struct Anyone {
    /// When peers are probed next.
    pub at_ns: u64,
    /// The first of them.
    pub(crate) next: usize,
    /// A peer died, and no receive was posted to report it.
    pub(crate) unreported_death: bool,
}

impl Default for Anyone {
    fn default() -> Anyone {
        Anyone {
            at_ns: u64::MAX,
            next: 0,
            unreported_death: false,
        }
    }
}

/// Departed peers, and slots without a peer.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// When to look at which peer again.
    pub(crate) waiting: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) free: Vec<u32>,
    /// Ids of forgotten peers, if packets have tags: recorded packets of them would be a first
    /// contact otherwise. Only processes with the job's key add to it.
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

/// A remote endpoint that the node knows; small until there is a connection.
#[derive(Debug)]
pub struct Peer {
    pub address: Address,
    /// The owner has a name for the peer.
    pub named: bool,
    /// The peer departed; only its address is retained.
    pub gone: bool,
    /// For a departed peer: when to look whether more of it can be freed.
    pub look_at_ns: u64,
    pub conn: Option<Box<Conn>>,
}
