//! Resolves addresses to peers of an endpoint, and peers to addresses.

use crate::api::{
    flag, AvId, Completion, Counted, Counter, CqId, EpId, FiAddr, OpError, SubmitError, ADDR_UNSPEC,
};
use crate::platform::bell::Bell;
use crate::state::av::Av;
use crate::stats::page::ENDPOINTS_MAX;
use marline_auth::HeadKeys;
use marline_proto::{Node, PeerId};
use marline_wire::Address;
use std::collections::VecDeque;
use std::sync::Arc;

/// Placeholder for an address that has not been looked up: a generation that no index has.
const NOBODY: (u32, PeerId) = (u32::MAX, PeerId(u32::MAX));

/// An endpoint: its node and the objects bound to it.
pub struct Endpoint {
    pub(crate) node: Node,
    /// Keys of the endpoint's packet tags; `None`: its packets have no tags.
    pub(crate) keys: Option<HeadKeys>,
    pub(crate) av: Option<AvId>,
    pub(crate) tx_cq: Option<CqId>,
    pub(crate) rx_cq: Option<CqId>,
    /// Counters by [`Counted`].
    pub(crate) counters: [Option<Arc<Counter>>; Counted::ALL.len()],
    /// Number of the endpoint's own open remote reads, writes and atomics.
    pub(crate) remote_open: u32,
    pub(crate) min_multi: u64,
    /// True if a receive from a sender without an address ends with an error that carries the
    /// address.
    pub(crate) source_err: bool,
    pub(crate) enabled: bool,
    /// Cache by slot of the address vector: generation and peer.
    pub(crate) peers: Vec<(u32, PeerId)>,
    /// Cache by peer: address index.
    pub(crate) addrs: Vec<FiAddr>,
}

/// Endpoints, address vectors and completion queues by handle.
#[derive(Default)]
pub struct Directory {
    pub(crate) eps: Vec<Option<Endpoint>>,
    /// Endpoint index by endpoint id.
    pub(crate) by_id: Vec<(u64, u32)>,
    /// Ids of the first endpoints, including closed ones: as many as a statistics page names.
    pub(crate) first_ids: Vec<u64>,
    /// Number of endpoints opened.
    pub(crate) opened: u64,
    pub(crate) avs: Vec<Option<Av>>,
    pub(crate) cqs: Vec<Option<VecDeque<Completion>>>,
    /// Bells of queues on which an application may sleep.
    bells: Vec<(CqId, Arc<Bell>)>,
    /// Addresses for the entries with [`OpError::UnknownSource`], in the order of each queue.
    strangers: VecDeque<(CqId, Address)>,
}

impl Endpoint {
    /// Counts a completion, if a counter is bound.
    pub(crate) fn count(&self, what: Counted, ok: bool) {
        if let Some(counter) = &self.counters[what as usize] {
            counter.count(ok);
        }
    }
}

/// Handles.
impl Directory {
    /// The endpoint with this id.
    #[inline]
    pub(crate) fn with_id(&self, id: u64) -> Option<u32> {
        let found = self.by_id.iter().find(|(of, _)| *of == id);
        found.map(|&(_, ep)| ep)
    }

    /// The endpoint with a handle.
    #[inline]
    pub(crate) fn ep(&mut self, ep: EpId) -> Option<&mut Endpoint> {
        self.eps.get_mut(ep.0 as usize)?.as_mut()
    }

    /// The node of an endpoint.
    pub(crate) fn node(&self, ep: EpId) -> Option<&Node> {
        Some(&self.eps.get(ep.0 as usize)?.as_ref()?.node)
    }

    /// The nodes of all endpoints.
    #[inline]
    pub(crate) fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        self.eps
            .iter_mut()
            .flatten()
            .map(|endpoint| &mut endpoint.node)
    }

    /// The nodes of all endpoints, by handle.
    pub(crate) fn all_nodes(&self) -> Vec<Option<&Node>> {
        let endpoints = self.eps.iter();
        let nodes = endpoints.map(|endpoint| endpoint.as_ref().map(|e| &e.node));
        nodes.collect()
    }

    /// Stores an endpoint.
    pub(crate) fn ep_insert(&mut self, id: u64, endpoint: Endpoint) -> EpId {
        let index = free_slot(&mut self.eps);
        self.eps[index] = Some(endpoint);
        self.by_id.push((id, index as u32));
        if self.first_ids.len() < ENDPOINTS_MAX {
            self.first_ids.push(id);
        }
        self.opened += 1;
        EpId(index as u32)
    }

    /// Opens a completion queue.
    pub(crate) fn cq_open(&mut self) -> CqId {
        let index = free_slot(&mut self.cqs);
        self.cqs[index] = Some(VecDeque::new());
        CqId(index as u32)
    }

    /// Rings a bell for each entry of a queue.
    pub(crate) fn cq_bell(&mut self, cq: CqId, bell: Arc<Bell>) {
        self.bells.push((cq, bell));
    }

    /// Closes a queue and drops its entries and its bell.
    pub(crate) fn cq_close(&mut self, cq: CqId) {
        if let Some(slot) = self.cqs.get_mut(cq.0 as usize) {
            *slot = None;
        }
        self.bells.retain(|(of, _)| *of != cq);
        self.strangers.retain(|(of, _)| *of != cq);
    }

    /// Turns the completion of a whole message into an error that carries the sender's address, if
    /// the endpoint requests this and its address vector lacks the sender.
    pub(crate) fn report_unknown_source(&mut self, ep: EpId, peer: PeerId, entry: &mut Completion) {
        let endpoint = self.eps.get(ep.0 as usize).and_then(Option::as_ref);
        let Some(endpoint) = endpoint.filter(|e| e.source_err && entry.error.is_none()) else {
            return;
        };
        if let Some((cq, address)) = endpoint.rx_cq.zip(endpoint.node.peer_address(peer)) {
            entry.error = Some(OpError::UnknownSource);
            self.strangers.push_back((cq, *address));
        }
    }

    /// Moves completions out of a queue, up to the first error; returns their number. An error if
    /// the first entry is one.
    pub(crate) fn cq_read(&mut self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
        let Some(queue) = self.cq(cq) else {
            return Ok(0);
        };
        let mut n = 0;
        while n < out.len() {
            match queue.front() {
                None => break,
                Some(entry) if entry.error.is_some() => {
                    return if n == 0 { Err(()) } else { Ok(n) };
                }
                Some(_) => {}
            }
            if let Some(entry) = queue.pop_front() {
                out[n] = entry;
                n += 1;
            }
        }
        Ok(n)
    }

    /// Turns the unread failure of a receive, whose peer is dead, into its cancellation. A caller
    /// that cancels a receive may wait for that word alone, as Mercury does. Returns false if there
    /// is no such entry, or if other endpoints use the queue, since entries do not name theirs.
    pub(crate) fn cancel_failed(&mut self, ep: EpId, context: usize) -> bool {
        let Some(cq) = self.ep(ep).and_then(|e| e.rx_cq) else {
            return false;
        };
        let users = self.eps.iter().flatten().filter(|e| e.rx_cq == Some(cq));
        if users.count() > 1 {
            return false;
        }
        let failed = |entry: &&mut Completion| {
            entry.context == context
                && entry.flags & flag::RECV != 0
                && entry.error == Some(OpError::PeerDead)
        };
        let entry = self.cq(cq).and_then(|q| q.iter_mut().find(failed));
        entry
            .map(|entry| entry.error = Some(OpError::Cancelled))
            .is_some()
    }

    /// Takes the error entry at the front of a queue, with the address that it carries.
    pub(crate) fn take_error(&mut self, cq: CqId) -> Option<(Completion, Option<Address>)> {
        let queue = self.cq(cq)?;
        queue.front().filter(|e| e.error.is_some())?;
        let entry = queue.pop_front()?;
        let unknown = entry.error == Some(OpError::UnknownSource);
        let of = |stranger: &(CqId, Address)| stranger.0 == cq;
        let at = self.strangers.iter().position(of).filter(|_| unknown);
        let stranger = at.and_then(|at| self.strangers.remove(at));
        Some((entry, stranger.map(|(_, address)| address)))
    }

    /// Rings the bell of a queue; `None`: all bells.
    #[inline]
    pub(crate) fn ring(&self, cq: Option<CqId>) {
        if !self.bells.is_empty() {
            let meant = |of: &&(CqId, _)| cq.is_none_or(|cq| cq == of.0);
            self.bells
                .iter()
                .filter(meant)
                .for_each(|(_, bell)| bell.ring());
        }
    }

    /// The completion queue with a handle.
    #[inline]
    pub(crate) fn cq(&mut self, cq: CqId) -> Option<&mut VecDeque<Completion>> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()
    }
}

/// Addresses.
impl Directory {
    /// Opens an address vector of type map or table.
    pub fn av_open(&mut self, map: bool) -> AvId {
        let index = free_slot(&mut self.avs);
        self.avs[index] = Some(Av::new(map));
        AvId(index as u32)
    }

    fn av(&mut self, av: AvId) -> Option<&mut Av> {
        self.avs.get_mut(av.0 as usize)?.as_mut()
    }

    /// Adds an address.
    pub fn av_insert(&mut self, av: AvId, address: Address) -> Result<FiAddr, SubmitError> {
        let entries = self.av(av).ok_or(SubmitError::Invalid)?;
        let addr = entries.insert(&address);
        for endpoint in self.eps.iter_mut().flatten().filter(|e| e.av == Some(av)) {
            // The peer's first packet came before its address was inserted.
            if let Some(peer) = endpoint.node.peer_named(address.id) {
                endpoint.node.name(peer);
            }
        }
        Ok(addr)
    }

    /// Makes an endpoint's peer of a sender whose address was inserted.
    #[cold]
    pub(crate) fn name_inserted(&mut self, ep: u32, id: u64) {
        let endpoint = self.eps.get_mut(ep as usize).and_then(Option::as_mut);
        let Some(endpoint) = endpoint else { return };
        let entries = endpoint
            .av
            .and_then(|av| self.avs.get(av.0 as usize)?.as_ref());
        let address = entries.and_then(|entries| entries.get(entries.find(id)));
        if let Some(address) = address {
            endpoint.node.peer(&address);
        }
    }

    /// Removes an address; the peer continues to exist. No completion names the address any more,
    /// not even an unread one, since its slot may get another address.
    pub fn av_remove(&mut self, av: AvId, addr: FiAddr) -> Result<(), SubmitError> {
        let entries = self.av(av).ok_or(SubmitError::Invalid)?;
        let address = entries.remove(addr).ok_or(SubmitError::BadAddress)?;
        let other = entries.find(address.id);
        for ep in self.eps.iter_mut().flatten().filter(|e| e.av == Some(av)) {
            let known = ep.peers.get_mut(Av::slot_of(addr));
            if let Some(known) = known.filter(|(life, _)| *life == Av::life_of(addr)) {
                *known = NOBODY;
            }
            if let Some(peer) = ep.node.peer_named(address.id) {
                if let Some(known) = ep.addrs.get_mut(peer.0 as usize) {
                    *known = other;
                }
                if other == ADDR_UNSPEC {
                    ep.node.av_removed(peer);
                }
            }
            let queue = ep.rx_cq.and_then(|cq| self.cqs.get_mut(cq.0 as usize));
            let queue = queue.and_then(Option::as_mut).into_iter().flatten();
            for entry in queue.filter(|entry| entry.source == addr) {
                entry.source = other;
            }
        }
        Ok(())
    }

    /// Bytes that all address vectors need, and the tables of endpoints that look addresses up.
    pub fn address_bytes(&self) -> usize {
        let vectors = self.avs.iter().flatten().map(Av::heap_bytes);
        let tables = self.eps.iter().flatten().map(|endpoint| {
            let peers = endpoint.peers.capacity() * size_of::<(u32, PeerId)>();
            peers + endpoint.addrs.capacity() * size_of::<FiAddr>()
        });
        vectors.sum::<usize>() + tables.sum::<usize>()
    }

    /// Encodes an address as a blob.
    pub fn av_lookup(&self, av: AvId, addr: FiAddr) -> Option<([u8; 64], usize)> {
        let av = self.avs.get(av.0 as usize)?.as_ref()?;
        Some(av.get(addr)?.encode())
    }

    /// The peer of an endpoint that an address names.
    #[inline]
    pub(crate) fn peer_of(&mut self, ep: EpId, addr: FiAddr) -> Option<PeerId> {
        let endpoint = self.eps.get_mut(ep.0 as usize)?.as_mut()?;
        match endpoint.peers.get(Av::slot_of(addr)) {
            Some(&(life, peer)) if life == Av::life_of(addr) && addr != ADDR_UNSPEC => {
                return Some(peer);
            }
            _ => {}
        }
        let av = self.avs.get(endpoint.av?.0 as usize)?.as_ref()?;
        let peer = endpoint.node.peer(&av.get(addr)?);
        let slot = Av::slot_of(addr);
        if endpoint.peers.len() <= slot {
            endpoint.peers.resize(slot + 1, NOBODY);
        }
        endpoint.peers[slot] = (Av::life_of(addr), peer);
        Some(peer)
    }

    /// The first address of a peer, for `FI_SOURCE`.
    #[inline]
    pub(crate) fn addr_of(&mut self, ep: EpId, peer: PeerId) -> FiAddr {
        let Some(endpoint) = self.eps.get_mut(ep.0 as usize).and_then(Option::as_mut) else {
            return ADDR_UNSPEC;
        };
        match endpoint.addrs.get(peer.0 as usize) {
            Some(&addr) if addr != ADDR_UNSPEC => return addr,
            _ => {}
        }
        let av = endpoint
            .av
            .and_then(|av| self.avs.get(av.0 as usize)?.as_ref());
        let id = endpoint.node.peer_address(peer).map(|a| a.id);
        let found = av.zip(id).map(|(av, id)| av.find(id));
        let Some(addr) = found.filter(|addr| *addr != ADDR_UNSPEC) else {
            return ADDR_UNSPEC;
        };
        endpoint.node.name(peer);
        if endpoint.addrs.len() <= peer.0 as usize {
            endpoint.addrs.resize(peer.0 as usize + 1, ADDR_UNSPEC);
        }
        endpoint.addrs[peer.0 as usize] = addr;
        addr
    }
}

/// Index of an empty slot, appended if necessary.
fn free_slot<V>(slots: &mut Vec<Option<V>>) -> usize {
    slots.iter().position(Option::is_none).unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}
