//! Context of a component's call: the node's settings, rails, clock and peers, and its queues of
//! events and counts.

use crate::base::config::Config;
use crate::base::stats::NodeStats;
use crate::base::types::{Event, PeerId};
use crate::state::conn::Conn;
use crate::state::descheduled::Descheduled;
use crate::state::directory::Directory;
use crate::state::link::Links;
use crate::state::local::Local;
use crate::state::run_queue::RunQueue;
use alloc::collections::VecDeque;

/// Probes received on a path without an ack of ours on it, after which this side probes the path in
/// return. (With fewer, and a loss of a tenth, path comparisons of many paths would cause each
/// other.)
const ASKED_BACK: u8 = 3;

/// Borrowed parts of a node, without its operations.
pub(crate) struct Context<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) local: &'a Local,
    pub(crate) descheduled: &'a Descheduled,
    pub(crate) directory: &'a mut Directory,
    pub(crate) run_queue: &'a mut RunQueue,
    pub(crate) links: &'a mut Links,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut NodeStats,
}

impl Context<'_> {
    #[inline]
    pub(crate) fn conn(&self, peer: PeerId) -> Option<&Conn> {
        self.directory.conn(peer)
    }

    #[inline]
    pub(crate) fn conn_mut(&mut self, peer: PeerId) -> Option<&mut Conn> {
        self.directory.conn_mut(peer)
    }

    /// Queues the peer for `poll_transmit`.
    pub(crate) fn wake(&mut self, peer: PeerId) {
        if let Some(conn) = self.directory.conn_mut(peer) {
            self.run_queue.mark_ready(conn);
        }
    }

    /// Handles a duplicate fragment that came on path `at`.
    pub(crate) fn note_duplicate(&mut self, peer: PeerId, at: usize) {
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.note_duplicate(at);
            self.run_queue.mark_ready(conn);
        }
    }

    /// Handles a probe. The path may carry the probe but not our answer. Only a probe of our own
    /// shows that; acks then take another path.
    pub(crate) fn ask_back(&mut self, peer: PeerId, at: usize) {
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[at];
        let asked = path.probing.on_received();
        if asked >= ASKED_BACK && path.usable() && path.ring.waiting() == 0 {
            path.probing.ask_back();
            self.run_queue.mark_ready(conn);
        }
    }

    /// Probes a peer that was neither heard nor probed recently. Returns whether it did.
    pub(crate) fn ask(&mut self, now: u64, conn: &mut Conn) -> bool {
        let asked = conn.ask(now, self.cfg, self.local.full);
        if asked == Some(true) {
            self.run_queue.mark_ready(conn);
        }
        asked.is_some()
    }

    /// Returns the credit of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        if let Some(conn) = self.directory.conn_mut(peer) {
            if conn.credit.give(bytes, self.cfg) {
                self.run_queue.mark_ready(conn);
            }
        }
    }

    /// Returns whether a message of this cost may be held, within this multiple of the bound on
    /// unexpected memory.
    pub(crate) fn has_room(&self, cost: u64, bounds: u64) -> bool {
        self.stats.unexpected_bytes + cost <= bounds * self.cfg.unexpected_bytes
    }

    /// Returns whether a message of this cost is within the bound on strangers' memory, if the peer
    /// is a stranger.
    pub(crate) fn has_share(&self, peer: PeerId, cost: u64) -> bool {
        self.is_admitted(peer) || self.directory.admission.has_room(self.cfg, cost)
    }

    /// Returns whether the owner has named the peer, or the peer has proved knowledge of the job's
    /// key.
    pub(crate) fn is_admitted(&self, peer: PeerId) -> bool {
        self.cfg.key_mark != 0 || self.directory.is_named(peer)
    }

    /// Charges a message for memory.
    pub(crate) fn charge(&mut self, peer: PeerId, bytes: u64) {
        self.directory
            .change(peer.0, |entry| entry.charged += bytes);
        self.stats.charge(bytes);
    }

    /// Returns the memory that a message was charged for.
    pub(crate) fn release(&mut self, peer: PeerId, bytes: u64) {
        self.stats.unexpected_bytes -= bytes;
        if bytes > 0 {
            self.directory
                .change(peer.0, |entry| entry.charged -= bytes);
        }
    }

    /// Counts the credit that a message from the peer used.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        let Directory {
            peers, promised, ..
        } = &mut *self.directory;
        let entry = peers.get_mut(peer.0 as usize);
        let Some(conn) = entry.and_then(|entry| entry.conn.as_deref_mut()) else {
            return;
        };
        let due = conn.credit.see(bytes, self.cfg);
        let grown = !conn.session.own && promised.grow(&mut conn.credit, self.cfg);
        if due || grown {
            self.run_queue.mark_ready(conn);
        }
    }
}

/// The parts of a node without peers' packets, for tests of single components.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::base::pairing::Pairing;
    use marline_wire::{Address, RailAddr};

    struct NoPairs;

    impl Pairing for NoPairs {
        fn pairs(&self, _: &[RailAddr], _: &[RailAddr]) -> alloc::vec::Vec<(usize, usize)> {
            alloc::vec::Vec::new()
        }
        fn reaches(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
        fn same_network(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
        fn same_host(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
        fn host_hash(&self, _: &RailAddr) -> u64 {
            0
        }
        fn same_end(&self, _: &RailAddr, _: &RailAddr) -> bool {
            false
        }
    }

    /// Owned parts of a [`Context`].
    pub(crate) struct Parts {
        pub(crate) cfg: Config,
        pub(crate) local: Local,
        pub(crate) descheduled: Descheduled,
        pub(crate) directory: Directory,
        pub(crate) run_queue: RunQueue,
        pub(crate) links: Links,
        pub(crate) events: VecDeque<Event>,
        pub(crate) stats: NodeStats,
    }

    impl Parts {
        /// The parts of a node without rails that has connections to `peers` peers.
        pub(crate) fn with_peers(peers: u64) -> Parts {
            let mut directory = Directory::new();
            for id in 1..=peers {
                let peer = directory.know(&Address::new(id, 0, &[]));
                let conn = alloc::boxed::Box::new(Conn::new(peer));
                directory.peers[peer.0 as usize].conn = Some(conn);
            }
            Parts {
                cfg: Config::default(),
                local: Local::new((1_000, 0, 0), alloc::vec::Vec::new(), &NoPairs),
                descheduled: Descheduled::default(),
                directory,
                run_queue: RunQueue::default(),
                links: Links::default(),
                events: VecDeque::new(),
                stats: NodeStats::default(),
            }
        }

        pub(crate) fn context(&mut self) -> Context<'_> {
            Context {
                cfg: &self.cfg,
                local: &self.local,
                descheduled: &self.descheduled,
                directory: &mut self.directory,
                run_queue: &mut self.run_queue,
                links: &mut self.links,
                events: &mut self.events,
                stats: &mut self.stats,
            }
        }
    }
}
