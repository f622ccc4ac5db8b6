//! An endpoint, with the whole API of the protocol. Its parts keep their state in `state`; the
//! folders above have their functions. A function that needs one part takes only that part.

use crate::base::config::{Config, RailSpec};
use crate::base::pairing::Pairing;
use crate::base::stats::{NodeStats, PathStats, PeerStats};
use crate::base::types::{Event, PathState, PeerId};
use crate::incoming::messages::Incoming;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::descheduled::Descheduled;
use crate::state::directory::{Directory, Peer};
use crate::state::link::Links;
use crate::state::local::Local;
use crate::state::path::Path;
use crate::state::pending::Pending;
use crate::state::run_queue::RunQueue;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use marline_wire::Address;

/// Counts of state retained for operations that have not ended: zero when the node is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sends (and answers to reads) whose data is not acknowledged.
    pub sends: usize,
    /// Incoming, unexpected and claimed messages, and reads.
    pub inbounds: usize,
    /// Posted receives; multi-receives count twice.
    pub receives: usize,
    /// Granted bytes that have not arrived.
    pub granted_bytes: u64,
    /// Bytes charged to the limit of unexpected memory.
    pub unexpected_bytes: u64,
}

/// An endpoint.
pub struct Node {
    pub(crate) cfg: Config,
    pub(crate) local: Local,
    pub(crate) directory: Directory,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) run_queue: RunQueue,
    /// Poll gaps of this node, and silences of descheduled peers.
    pub(crate) descheduled: Descheduled,
    pub(crate) pending: Pending,
    pub(crate) links: Links,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: NodeStats,
}

impl Node {
    /// A node with its identity (id, token, epoch) and rails. `rails[i]` is the local rail with
    /// index `i`; rails beyond [`marline_wire::RAILS_MAX`] are ignored. `pairing` decides which
    /// local rails reach which rails of a peer.
    pub fn new(
        cfg: Config,
        identity: (u64, u32, u32),
        rails: Vec<RailSpec>,
        pairing: &'static dyn Pairing,
    ) -> Node {
        let local = Local::new(identity, rails, pairing);
        Node {
            cfg,
            incoming: Incoming::new(local.receive_budget()),
            outgoing: Outgoing::new(local.id),
            local,
            directory: Directory::new(),
            run_queue: RunQueue::default(),
            descheduled: Descheduled::default(),
            pending: Pending::default(),
            links: Links::default(),
            events: VecDeque::new(),
            stats: NodeStats::default(),
        }
    }

    /// Sets the secret from which the epoch for each peer is derived. Call it before any epoch is
    /// needed.
    pub fn set_secret(&mut self, secret: (u64, u64)) {
        self.local.secret = secret;
    }

    /// Epoch of this endpoint, as its groups use it.
    pub fn epoch(&self) -> u32 {
        self.local.epoch
    }

    /// Sets the message lengths that get checksums; messages already posted are not affected.
    pub fn set_summed(&mut self, lengths: (u64, u64)) {
        self.cfg.summed = lengths;
    }

    /// This endpoint's random id.
    pub fn id(&self) -> u64 {
        self.local.id
    }

    /// The token of this endpoint.
    pub fn token(&self) -> u32 {
        self.local.token
    }

    /// Returns the peer with this address, and adds it if it is unknown; sends nothing. The peer
    /// counts as named by the owner until [`Node::av_removed`].
    pub fn peer(&mut self, address: &Address) -> PeerId {
        self.displace_stranger(address);
        if self.peer_named(address.id).is_none() {
            let (stats, events) = (&mut self.stats, &mut self.events);
            self.local
                .note_unknown_rails(stats, events, &address.rails());
        }
        let peer = self.directory.know(address);
        self.name(peer);
        peer
    }

    /// Prepares a connection to the peer, as the first operation that names it does. A peer without
    /// a common version is told.
    pub fn meet(&mut self, peer: PeerId) {
        self.ensure_conn(peer);
    }

    /// Address of a peer.
    pub fn peer_address(&self, peer: PeerId) -> Option<&Address> {
        self.directory
            .peers
            .get(peer.0 as usize)
            .map(|p| &p.address)
    }

    /// The peer with this endpoint id, if it is known.
    pub fn peer_named(&self, id: u64) -> Option<PeerId> {
        self.directory.by_id.get(&id).map(|&index| PeerId(index))
    }

    /// Number of strangers (peers whose address the owner has not inserted) with a connection.
    pub fn strangers(&self) -> usize {
        self.directory.admission.strangers()
    }

    /// Returns whether the endpoint with this id has this slot.
    pub fn knows(&self, slot: u32, id: u64) -> bool {
        let peer = self.directory.peers.get(slot as usize);
        peer.is_some_and(|peer| peer.address.id == id)
    }

    /// True if the peer is dead or has said BYE: sends to it fail.
    pub fn peer_gone(&self, peer: PeerId) -> bool {
        let entry = self.directory.peers.get(peer.0 as usize);
        entry.is_some_and(|entry| match &entry.conn {
            Some(conn) => conn.session.is_over(),
            None => entry.gone,
        })
    }

    /// True if the peer was declared dead, which a closed peer is not.
    pub fn peer_dead(&self, peer: PeerId) -> bool {
        self.conn(peer).is_some_and(|conn| conn.session.dead)
    }

    /// True if the peer has said BYE: it closed its endpoint and is not dead.
    pub fn peer_closed(&self, peer: PeerId) -> bool {
        self.conn(peer)
            .is_some_and(|conn| conn.session.closed && !conn.session.dead)
    }

    /// Local rails and links of the paths to a peer, each with a flag: the path is known to carry
    /// packets. For packets outside the message protocol, which may be lost.
    pub fn paths_of(&self, peer: PeerId) -> impl Iterator<Item = (usize, u32, bool)> + '_ {
        let paths = self.conn(peer).into_iter().flat_map(|conn| &conn.paths);
        paths.filter_map(|path| {
            let works = path.link.up && path.usable() && !path.doubtful();
            Some((path.local as usize, path.link.id?, works))
        })
    }

    /// Number of the payload checksum used with the peer: as agreed by HELLO, or the algorithm of
    /// first packets before that. A single rail may use another one. `None` for the endpoint
    /// itself, whose loopback messages carry no sums.
    pub fn peer_algorithm(&self, peer: PeerId) -> Option<u8> {
        self.conn(peer)
            .filter(|c| !c.session.own)
            .map(|c| c.session.algorithm)
    }

    /// The next event, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.outgoing.has_natives() {
            let (outgoing, mut ctx) = self.outgoing();
            outgoing.finish_natives(&mut ctx);
        }
        self.events.pop_front()
    }

    /// Counters of the node.
    pub fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Calls `f` with the counters of every peer with a connection, and of its paths:
    /// `(peer, id, counters, [(local rail, remote rail, state, counters)])`.
    pub fn for_each_peer(
        &self,
        mut f: impl FnMut(
            PeerId,
            u64,
            &PeerStats,
            &mut dyn Iterator<Item = (u8, u8, PathState, PathStats)>,
        ),
    ) {
        for peer in &self.directory.peers {
            peer.report(&mut f);
        }
    }

    /// Calls `f` with the counters of one peer and of its paths, if the peer has a connection.
    pub fn for_peer(
        &self,
        peer: PeerId,
        mut f: impl FnMut(
            PeerId,
            u64,
            &PeerStats,
            &mut dyn Iterator<Item = (u8, u8, PathState, PathStats)>,
        ),
    ) {
        if let Some(entry) = self.directory.peers.get(peer.0 as usize) {
            entry.report(&mut f);
        }
    }

    /// Heap bytes of reliability state besides connections: tables (no payload). Includes unused
    /// capacity.
    pub fn table_bytes(&self) -> usize {
        let hosts = self.directory.hosts.heap_bytes();
        hosts + self.outgoing.heap_bytes() + self.incoming.heap_bytes()
    }

    /// Heap bytes of the reliability state of one peer: connection, windows, sent-packet rings.
    pub fn conn_bytes(&self, peer: PeerId) -> usize {
        let Some(conn) = self.conn(peer) else {
            return 0;
        };
        let paths = conn.paths.iter();
        let windows: usize = paths
            .map(|p| p.ring.heap_bytes() + p.acks.heap_bytes())
            .sum();
        size_of::<Conn>() + conn.paths.capacity() * size_of::<Path>() + windows
    }

    /// Number of peers that the node knows, with or without a connection: their ids are below it.
    pub fn peers_known(&self) -> usize {
        self.directory.peers.len()
    }

    /// Bytes of all peers with a connection, including their heap memory, and the number of peers.
    /// (Messages in flight are not included.)
    pub fn peer_bytes(&self) -> (usize, usize) {
        let conns = self.directory.conns();
        let sizes = conns.map(|c| size_of::<Peer>() + c.bytes());
        sizes.fold((0, 0), |(bytes, count), b| (bytes + b, count + 1))
    }

    /// True if anything is queued to be sent to any peer.
    pub fn wants_transmit(&self) -> bool {
        !self.run_queue.ready.is_empty() || self.asks_links()
    }

    /// Number of messages posted to the peer of which no byte has left.
    pub fn unsent_heads(&self, peer: PeerId) -> usize {
        self.conn(peer).map_or(0, |c| c.tx.queue.len())
    }

    /// True if the payload of a message of `len` bytes may leave as soon as the message is posted,
    /// without a rendezvous request.
    pub fn is_ready_for(&self, peer: PeerId, len: u64) -> bool {
        let conn = self.conn(peer);
        len <= self.cfg.eager_max && conn.is_none_or(|c| c.credit.allows(len))
    }

    /// True if all sends were delivered.
    pub fn drained(&self) -> bool {
        let knows = || self.cfg.native_rails == 0 || self.directory.knows_natives();
        self.outgoing.len() == 0 && knows()
    }

    /// Peers that have not acknowledged all of our sends, with the number of such sends, largest
    /// first.
    pub fn undelivered(&self) -> Vec<(PeerId, usize)> {
        let mut by_peer: BTreeMap<u32, usize> = BTreeMap::new();
        for send in self.outgoing.iter() {
            *by_peer.entry(send.peer.0).or_default() += 1;
        }
        let counts = by_peer.into_iter();
        let mut counts: Vec<_> = counts.map(|(peer, count)| (PeerId(peer), count)).collect();
        counts.sort_by_key(|&(peer, count)| (Reverse(count), peer.0));
        counts
    }

    /// True if no operation or queue of the node waits for time to pass or packets to arrive.
    pub fn is_idle(&self) -> bool {
        let waits = !self.run_queue.ready.is_empty() || !self.run_queue.stalled.is_empty();
        self.outgoing.len() == 0 && !waits && self.next_deadline().is_none()
    }

    /// How many messages of a peer were matched, in order.
    pub fn matched_upto(&self, peer: PeerId) -> u64 {
        self.conn(peer).map_or(0, |c| c.rx.next_match)
    }

    /// Counts state retained for operations that have not ended.
    pub fn held(&self) -> Held {
        let receives = self.incoming.receives();
        Held {
            sends: self.outgoing.len(),
            inbounds: self.incoming.len(),
            receives: receives.posted() + receives.buffers(),
            granted_bytes: self.incoming.grants().out(),
            unexpected_bytes: self.stats.unexpected_bytes,
        }
    }

    /// Number of multi-receive buffers.
    pub fn buffers(&self) -> usize {
        self.incoming.receives().buffers()
    }

    /// Invariant check: the id of a peer for which an operation waits although no timer will probe
    /// it and nothing is queued for it, so that its death would go unnoticed. Between two calls
    /// there must be none. The node's own id stands for receives from any source.
    pub fn unasked(&self) -> Option<u64> {
        if self.incoming.forgets_any_source(&self.cfg) {
            return Some(self.local.id);
        }
        let mut conns = self.directory.conns();
        let asked = |c: &Conn| c.listed.armed < u64::MAX || c.has_work() || !self.cfg.reliable;
        let forgotten = conns.find(|c| !c.session.is_over() && c.watched() && !asked(c))?;
        self.peer_address(forgotten.peer).map(|a| a.id)
    }

    /// The incoming messages, and the context that they need.
    #[inline]
    pub(crate) fn incoming(&mut self) -> (&mut Incoming, Context<'_>) {
        let ctx = Context {
            cfg: &self.cfg,
            local: &self.local,
            descheduled: &self.descheduled,
            directory: &mut self.directory,
            run_queue: &mut self.run_queue,
            links: &mut self.links,
            events: &mut self.events,
            stats: &mut self.stats,
        };
        (&mut self.incoming, ctx)
    }

    /// The outgoing messages, and the context that they need.
    #[inline]
    pub(crate) fn outgoing(&mut self) -> (&mut Outgoing, Context<'_>) {
        let ctx = Context {
            cfg: &self.cfg,
            local: &self.local,
            descheduled: &self.descheduled,
            directory: &mut self.directory,
            run_queue: &mut self.run_queue,
            links: &mut self.links,
            events: &mut self.events,
            stats: &mut self.stats,
        };
        (&mut self.outgoing, ctx)
    }

    /// Context for the components: the other parts of the node.
    #[inline]
    pub(crate) fn context(&mut self) -> Context<'_> {
        self.outgoing().1
    }

    pub(crate) fn conn(&self, peer: PeerId) -> Option<&Conn> {
        self.directory.conn(peer)
    }

    pub(crate) fn conn_mut(&mut self, peer: PeerId) -> Option<&mut Conn> {
        self.directory.conn_mut(peer)
    }

    /// Takes the connection out of the table, so that the connection and the rest of the node can
    /// be borrowed at once. Every `take` is followed by a `put` in the same function.
    #[inline]
    pub(crate) fn take(&mut self, peer: PeerId) -> Option<Box<Conn>> {
        self.directory.peers.get_mut(peer.0 as usize)?.conn.take()
    }

    #[inline]
    pub(crate) fn put(&mut self, conn: Box<Conn>) {
        let index = conn.peer.0 as usize;
        self.directory.peers[index].conn = Some(conn);
    }
}

impl Peer {
    /// Calls `f` with the counters, if there is a connection.
    fn report(
        &self,
        f: &mut impl FnMut(
            PeerId,
            u64,
            &PeerStats,
            &mut dyn Iterator<Item = (u8, u8, PathState, PathStats)>,
        ),
    ) {
        let Some(conn) = &self.conn else { return };
        let paths = conn.paths.iter();
        let mut paths = paths.map(|p| (p.local, p.to.index, p.state(), p.stats));
        f(conn.peer, self.address.id, &conn.stats, &mut paths);
    }
}
