//! One endpoint: the only door to the protocol. State lives here; what is done with it is in
//! `ops` (posting), `receive` (packets in), `transmit` (packets out) and `timers`.

use crate::base::config::{Config, RailSpec};
use crate::base::pairing::Pairing;
use crate::base::slab::{Key, Slab};
use crate::base::stats::{NodeStats, PathStats, PeerStats};
use crate::base::types::{Event, PathState, PeerId, WriteOut};
use crate::state::absences::Absences;
use crate::state::conn::{Conn, FIRST_PATHS};
use crate::state::directory::{Anyone, Departed, Peer};
use crate::state::matching::Matching;
use crate::state::path::{LocalRail, Path, Policy};
use crate::state::pending::{DeferredAck, Unkept};
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, SendXfer};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use marline_wire::{Address, Hello, RailAddr, RailList, RAILS_MAX};

/// Outstanding completions into one multi-receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multi {
    pub outstanding: u32,
    pub retired: bool,
}

/// Counts of all that a node keeps for operations that have not ended: zero when nothing is going
/// on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sends (and answers to reads) whose data is not acknowledged.
    pub sends: usize,
    /// Messages on their way in, or unexpected, or claimed; and reads.
    pub inbounds: usize,
    /// Posted receives; multi-receives twice.
    pub receives: usize,
    /// Granted but not yet received bytes.
    pub granted_bytes: u64,
    /// Bytes charged to the bound on unexpected memory.
    pub unexpected_bytes: u64,
}

/// One endpoint.
pub struct Node {
    pub(crate) cfg: Config,
    pub(crate) id: u64,
    pub(crate) token: u32,
    pub(crate) epoch: u32,
    pub(crate) rails: Vec<RailSpec>,
    pub(crate) pairing: &'static dyn Pairing,
    /// Kinds of rails that are not known here and of which it was told.
    pub(crate) unknown_kinds: Vec<u8>,
    pub(crate) rail_down: [bool; RAILS_MAX],
    /// Some rail can write.
    pub(crate) writes: bool,
    /// Local rails that have no room now, bit n for rail n, and peers that wait for one of them.
    pub(crate) full: u32,
    pub(crate) stalled: Vec<PeerId>,
    pub(crate) write_out: Option<WriteOut>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) by_id: BTreeMap<u64, u32>,
    pub(crate) sends: Slab<SendXfer>,
    pub(crate) inbounds: Slab<Inbound>,
    pub(crate) matching: Matching,
    pub(crate) multi: BTreeMap<u32, Multi>,
    pub(crate) ready: VecDeque<PeerId>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) deadlines: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) grant_queue: VecDeque<Key>,
    /// Granted but not yet received bytes, of all peers.
    pub(crate) granted_out: u64,
    pub(crate) grant_budget: u64,
    /// When to look for grants whose data does not come, while others wait for the budget.
    pub(crate) grants_at: u64,
    /// No grant is stale before: until then nobody looks for one.
    pub(crate) stale_at: u64,
    /// Credit windows of all peers together.
    pub(crate) credit_promised: u64,
    pub(crate) scratch: Vec<FrameRef>,
    /// The packet that was built last, until it was sent.
    pub(crate) unkept: Option<Unkept>,
    /// An ack that waits until nothing else is to be done.
    pub(crate) deferred_ack: Option<DeferredAck>,
    /// Native mode: sends whose last packet was just built.
    pub(crate) native_done: Vec<Key>,
    pub(crate) last_poll_ns: u64,
    /// Stretches without polling, ours and those of peers.
    pub(crate) absences: Absences,
    pub(crate) closing: bool,
    /// The progress thread is at work, not the application.
    pub(crate) by_thread: bool,
    /// Peers whose memory grew, and when to look at them.
    pub(crate) oversized: Vec<u32>,
    pub(crate) departed: Departed,
    pub(crate) reclaim_at: u64,
    pub(crate) anyone: Anyone,
    /// Peers with paths that want links, and links of local rails that are not used any more.
    pub(crate) unlinked: Vec<PeerId>,
    pub(crate) unused_links: Vec<(usize, u32)>,
    pub(crate) stats: NodeStats,
}

impl Node {
    /// A node with its identity and rails. `rails[i]` is the local rail of index `i`; there are at
    /// most [`RAILS_MAX`], and further ones are left out. `pairing` tells which of them reach which
    /// of a peer's.
    pub fn new(
        cfg: Config,
        (id, token, epoch): (u64, u32, u32),
        mut rails: Vec<RailSpec>,
        pairing: &'static dyn Pairing,
    ) -> Node {
        rails.truncate(RAILS_MAX);
        let budget = rails
            .iter()
            .filter(|r| !r.standby)
            .map(|r| r.receive_budget)
            .max()
            .unwrap_or(64_000);
        Node {
            cfg,
            id,
            token,
            epoch,
            writes: rails.iter().any(|r| r.addr.writes() && !r.standby),
            rails,
            pairing,
            unknown_kinds: Vec::new(),
            rail_down: [false; RAILS_MAX],
            full: 0,
            stalled: Vec::new(),
            write_out: None,
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            sends: Slab::new(),
            inbounds: Slab::new(),
            matching: Matching::default(),
            multi: BTreeMap::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            grant_queue: VecDeque::new(),
            granted_out: 0,
            grant_budget: budget,
            grants_at: u64::MAX,
            stale_at: 0,
            credit_promised: 0,
            scratch: Vec::new(),
            unkept: None,
            deferred_ack: None,
            native_done: Vec::new(),
            last_poll_ns: 0,
            absences: Absences::default(),
            closing: false,
            by_thread: false,
            oversized: Vec::new(),
            departed: Departed::default(),
            reclaim_at: u64::MAX,
            anyone: Anyone::default(),
            unlinked: Vec::new(),
            unused_links: Vec::new(),
            stats: NodeStats::default(),
        }
    }

    /// From now on messages of these lengths get sums; what was posted before stays as it is.
    pub fn set_summed(&mut self, lengths: (u64, u64)) {
        self.cfg.summed = lengths;
    }

    /// This endpoint's random id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// HELLO for a peer, with as many rails as `rails` has room for.
    pub(crate) fn hello<'a>(&self, conn: &Conn, rails: &'a mut [u8]) -> Hello<'a> {
        Hello {
            slot: conn.peer.0,
            id: self.id,
            token: self.token,
            epoch: self.epoch,
            algorithm: self.cfg.algorithm,
            algorithms: self.cfg.algorithms_mask(),
            reliable: self.cfg.reliable,
            credit: conn.credit_limit_announced(),
            rails: RailList::write(rails, &self.named_addrs()),
        }
    }

    /// The peer with this address; known or new (nothing is sent yet). From now on the owner has a
    /// name for it, until [`Node::unname`].
    pub fn peer(&mut self, address: &Address) -> PeerId {
        if self.peer_named(address.id).is_none() {
            self.note_unknown_rails(&address.rails());
        }
        let peer = self.know(address);
        self.name(peer);
        peer
    }

    /// Address of a peer.
    pub fn peer_address(&self, peer: PeerId) -> Option<&Address> {
        self.peers.get(peer.0 as usize).map(|p| &p.address)
    }

    /// The peer with this endpoint id, if it is known.
    pub fn peer_named(&self, id: u64) -> Option<PeerId> {
        self.by_id.get(&id).map(|&index| PeerId(index))
    }

    /// Returns whether the peer is dead or has said BYE: sends to it fail.
    pub fn peer_gone(&self, peer: PeerId) -> bool {
        let entry = self.peers.get(peer.0 as usize);
        entry.is_some_and(|entry| match &entry.conn {
            Some(conn) => conn.dead || conn.closed,
            None => entry.gone,
        })
    }

    /// Number of the payload checksum used with the peer, as agreed by HELLO or, before that, what
    /// the first packets have. Single rails may have another. `None` for the endpoint itself, to
    /// which nothing is summed.
    pub fn peer_algorithm(&self, peer: PeerId) -> Option<u8> {
        self.conn(peer).filter(|c| !c.own).map(|c| c.algorithm)
    }

    /// Next event, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(key) = self.native_done.pop() {
            self.finish_send_if_done(key);
        }
        self.events.pop_front()
    }

    /// Counters of the node.
    pub fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Counters of every peer that was spoken to, with its paths:
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
        for peer in &self.peers {
            peer.report(&mut f);
        }
    }

    /// The same of one peer.
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
        if let Some(entry) = self.peers.get(peer.0 as usize) {
            entry.report(&mut f);
        }
    }

    /// Heap bytes of reliability state: conversations, windows, sent-packet rings, tables (not
    /// payload). What they have room for counts, used or not.
    pub fn reliability_bytes(&self) -> usize {
        let conns = self.peers.iter().filter_map(|p| p.conn.as_ref());
        let conns: usize = conns
            .map(|c| {
                let paths = c.paths.iter();
                let windows: usize = paths
                    .map(|p| p.ring.heap_bytes() + p.window.heap_bytes())
                    .sum();
                size_of::<Conn>() + c.paths.capacity() * size_of::<Path>() + windows
            })
            .sum();
        let sets: usize = self.sends.iter().map(|(_, s)| s.acked.heap_bytes()).sum();
        conns + sets + self.sends.heap_bytes() + self.inbounds.heap_bytes()
    }

    /// Bytes that the peers spoken to take, with everything on the heap that belongs to one, and
    /// how many they are. (Messages under way are not in it.)
    pub fn peer_bytes(&self) -> (usize, usize) {
        let conns = self.peers.iter().filter_map(|p| p.conn.as_deref());
        let sizes = conns.map(|c| size_of::<Peer>() + c.bytes());
        sizes.fold((0, 0), |(bytes, count), b| (bytes + b, count + 1))
    }

    /// Returns whether anything waits to be sent to any peer.
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || self.asks_links()
    }

    /// The heads of messages that were posted but have not left, over all peers that are ready.
    pub fn unsent_heads(&self, peer: PeerId) -> usize {
        self.conn(peer).map_or(0, |c| c.queue.len())
    }

    /// Returns whether the payload of a message of `len` bytes may leave as soon as it is posted.
    /// Else a request leaves for it.
    pub fn is_ready_for(&self, peer: PeerId, len: u64) -> bool {
        let conn = self.conn(peer);
        len <= self.cfg.eager_max && conn.is_none_or(|c| c.has_credit_for(len))
    }

    /// Returns whether every send of ours was delivered.
    pub fn drained(&self) -> bool {
        self.sends.len() == 0
    }

    /// Peers that have not acknowledged all of our sends, and how many; whoever lacks most first.
    pub fn undelivered(&self) -> Vec<(PeerId, usize)> {
        let mut counts: Vec<(PeerId, usize)> = Vec::new();
        for (_, send) in self.sends.iter() {
            match counts.iter_mut().find(|(peer, _)| *peer == send.peer) {
                Some((_, count)) => *count += 1,
                None => counts.push((send.peer, 1)),
            }
        }
        counts.sort_by_key(|&(peer, count)| (Reverse(count), peer.0));
        counts
    }

    /// Returns whether the node owes or is owed something that needs time to pass or packets to
    /// come.
    pub fn is_idle(&self) -> bool {
        let waits = !self.ready.is_empty() || !self.stalled.is_empty();
        self.sends.len() == 0 && !waits && self.next_deadline().is_none()
    }

    /// How many messages of a peer went through matching, in their order.
    pub fn matched_upto(&self, peer: PeerId) -> u64 {
        self.conn(peer).map_or(0, |c| c.next_match)
    }

    /// Counts what the node keeps for operations that have not ended.
    pub fn held(&self) -> Held {
        Held {
            sends: self.sends.len(),
            inbounds: self.inbounds.len(),
            receives: self.matching.posted() + self.multi.len(),
            granted_bytes: self.granted_out,
            unexpected_bytes: self.stats.unexpected_bytes,
        }
    }

    /// Id of a peer for whose word something waits while no timer will ask for it and nothing is to
    /// be sent. There must be none between two calls: were it dead, nobody would ever know. The
    /// node's own id stands for anyone.
    pub fn unasked(&self) -> Option<u64> {
        if self.forgets_anyone() {
            return Some(self.id);
        }
        let mut conns = self.peers.iter().filter_map(|p| p.conn.as_deref());
        let asked = |c: &Conn| c.armed < u64::MAX || c.has_work() || !self.cfg.reliable;
        let forgotten = conns.find(|c| !c.dead && !c.closed && c.watched() && !asked(c))?;
        self.peer_address(forgotten.peer).map(|a| a.id)
    }

    pub(crate) fn conn(&self, peer: PeerId) -> Option<&Conn> {
        self.peers.get(peer.0 as usize)?.conn.as_deref()
    }

    pub(crate) fn conn_mut(&mut self, peer: PeerId) -> Option<&mut Conn> {
        self.peers.get_mut(peer.0 as usize)?.conn.as_deref_mut()
    }

    /// Takes the conversation out, so that it and the rest of the node can be used at once.
    /// Every `take` is followed by a `put` in the same function.
    #[inline]
    pub(crate) fn take(&mut self, peer: PeerId) -> Option<Box<Conn>> {
        self.peers.get_mut(peer.0 as usize)?.conn.take()
    }

    #[inline]
    pub(crate) fn put(&mut self, conn: Box<Conn>) {
        let index = conn.peer.0 as usize;
        self.peers[index].conn = Some(conn);
    }

    /// Starts the conversation if there is none yet.
    pub(crate) fn ensure_conn(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get(peer.0 as usize) else {
            return;
        };
        if entry.conn.is_some() || entry.gone {
            return;
        }
        let mut conn = Box::new(Conn::new(peer));
        if entry.address.id == self.id {
            conn.own = true;
            self.peers[peer.0 as usize].conn = Some(conn);
            return;
        }
        conn.credit_window = self.cfg.credit_window(self.credit_promised);
        self.credit_promised += conn.credit_window;
        let rails: Vec<RailAddr> = entry.address.rails().iter().collect();
        self.peers[peer.0 as usize].conn = Some(conn);
        self.add_paths(peer, &rails, FIRST_PATHS);
    }

    /// Addresses of the own rails, by index.
    pub(crate) fn local_addrs(&self) -> Vec<RailAddr> {
        self.rails.iter().map(|r| r.addr).collect()
    }

    /// Those of them that others are told.
    pub(crate) fn named_addrs(&self) -> Vec<RailAddr> {
        let named = self.rails.iter().filter(|r| !r.standby);
        named.map(|r| r.addr).collect()
    }

    /// The local rails as paths are made from them.
    pub(crate) fn local_rails(&self) -> Vec<LocalRail> {
        (0..self.rails.len())
            .map(|at| self.local_rail(at))
            .collect()
    }

    /// One local rail as paths are made from it.
    pub(crate) fn local_rail(&self, at: usize) -> LocalRail {
        let spec = &self.rails[at];
        let native = self.cfg.reliable && self.cfg.native_rails >> at & 1 == 1;
        LocalRail {
            datagram_max: spec.datagram_max,
            tier: self.cfg.policy.tier(spec),
            policy: Policy::new(spec.delivery, native),
        }
    }

    /// Queues the peer for `poll_transmit`.
    #[inline]
    pub(crate) fn mark_ready(ready: &mut VecDeque<PeerId>, conn: &mut Conn) {
        if !conn.ready {
            conn.ready = true;
            ready.push_back(conn.peer);
        }
    }
}

impl Peer {
    /// Hands the counters to `f`, if the peer was spoken to.
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
        let mut paths = paths.map(|p| (p.local, p.remote, p.state, p.stats));
        f(conn.peer, self.address.id, &conn.stats, &mut paths);
    }
}
