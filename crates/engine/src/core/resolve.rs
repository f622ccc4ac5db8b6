//! Whom an address names for an endpoint, and which address a peer has.

use crate::api::{AvId, EpId, FiAddr, SubmitError, ADDR_UNSPEC};
use crate::core::av::Av;
use crate::core::state::{free_slot, Core};
use crate::platform::system::System;
use marline_proto::PeerId;
use marline_wire::Address;

/// What stands where no address was looked up.
const NOBODY: (FiAddr, PeerId) = (ADDR_UNSPEC, PeerId(u32::MAX));

impl<S: System> Core<S> {
    /// A new address vector: a map, or a table.
    pub fn av_open(&mut self, map: bool) -> AvId {
        let index = free_slot(&mut self.avs);
        self.avs[index] = Some(Av::new(map));
        AvId(index as u32)
    }

    fn av(&mut self, av: AvId) -> Option<&mut Av> {
        self.avs.get_mut(av.0 as usize)?.as_mut()
    }

    /// Adds an address.
    pub fn av_insert(&mut self, av: AvId, blob: &[u8]) -> Result<FiAddr, SubmitError> {
        let address = Address::decode(blob).map_err(|_| SubmitError::BadAddress)?;
        let av = self.av(av).ok_or(SubmitError::Invalid)?;
        Ok(av.insert(address))
    }

    /// Forgets an address; the peer behind it lives on. No entry names it from now on, not even one
    /// that is not read yet: the next address in its slot may be another's.
    pub fn av_remove(&mut self, av: AvId, addr: FiAddr) -> Result<(), SubmitError> {
        let entries = self.av(av).ok_or(SubmitError::Invalid)?;
        let address = entries.remove(addr).ok_or(SubmitError::BadAddress)?;
        let other = entries.find(address.id);
        for ep in self.eps.iter_mut().flatten().filter(|e| e.av == Some(av)) {
            let known = ep.peers.get_mut(Av::slot_of(addr));
            if let Some(known) = known.filter(|(name, _)| *name == addr) {
                *known = NOBODY;
            }
            if let Some(peer) = ep.node.peer_named(address.id) {
                if let Some(known) = ep.addrs.get_mut(peer.0 as usize) {
                    *known = other;
                }
                if other == ADDR_UNSPEC {
                    ep.node.unname(peer);
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

    /// The blob of an address.
    pub fn av_lookup(&self, av: AvId, addr: FiAddr) -> Option<([u8; 64], usize)> {
        let av = self.avs.get(av.0 as usize)?.as_ref()?;
        Some(av.get(addr)?.encode())
    }

    /// The peer that an address names, for an endpoint.
    #[inline]
    pub(crate) fn peer_of(&mut self, ep: EpId, addr: FiAddr) -> Option<PeerId> {
        let endpoint = self.eps.get_mut(ep.0 as usize)?.as_mut()?;
        match endpoint.peers.get(Av::slot_of(addr)) {
            Some(&(name, peer)) if name == addr && addr != ADDR_UNSPEC => return Some(peer),
            _ => {}
        }
        let av = self.avs.get(endpoint.av?.0 as usize)?.as_ref()?;
        let peer = endpoint.node.peer(av.get(addr)?);
        let slot = Av::slot_of(addr);
        if endpoint.peers.len() <= slot {
            endpoint.peers.resize(slot + 1, NOBODY);
        }
        endpoint.peers[slot] = (addr, peer);
        Some(peer)
    }

    /// The (first) address of a peer, for `FI_SOURCE`.
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
