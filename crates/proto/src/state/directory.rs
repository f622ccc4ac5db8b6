//! Peers that a node knows, by number, and those that are gone.

use crate::state::conn::Conn;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use marline_wire::Address;

/// The watch for receives from anyone.
#[derive(Debug)]
pub(crate) struct Anyone {
    /// When peers are looked at next.
    pub at_ns: u64,
    /// The first of them.
    pub(crate) next: usize,
    /// A peer died, and no receive was there to be told.
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

/// Peers that are gone, and slots without a peer.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// When to look at which peer again.
    pub(crate) waiting: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) free: Vec<u32>,
}

impl Departed {
    /// Slots without a peer.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// When a peer is to be looked at.
    pub(crate) fn at(&self) -> u64 {
        let next = self.waiting.peek();
        next.map_or(u64::MAX, |Reverse((at, _))| *at)
    }
}

/// A remote endpoint that the node knows of; small until they speak.
#[derive(Debug)]
pub struct Peer {
    pub address: Address,
    /// It was said that its settings clash with ours.
    pub mismatched: bool,
    /// The owner has a name for it.
    pub named: bool,
    /// It left, and is forgotten but for its address.
    pub gone: bool,
    /// Since it departed: when to look whether more of it can be forgotten.
    pub look_at_ns: u64,
    pub conn: Option<alloc::boxed::Box<Conn>>,
}
