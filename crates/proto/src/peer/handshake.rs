//! Handshake: HELLO, and the probes of a new path. In an all-to-all of a thousand ranks a million
//! pairs meet at once, so no unnecessary packet may be sent.

use crate::base::mutation::Mutation;
use crate::base::types::{DropReason, Event, PeerId};
use crate::node::Node;
use crate::state::admission::Proof;
use crate::state::conn::{Conn, FIRST_PATHS};
use crate::state::context::Context;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{Address, Frame, Header, Hello, Packet, RailAddr};

impl Node {
    /// Opens a connection to the peer if there is none.
    pub(crate) fn ensure_conn(&mut self, peer: PeerId) {
        if self.conn(peer).is_none() {
            self.context().open_conn(peer);
            self.end_unreachable(peer);
            self.refuse_without_version(peer);
        }
    }

    /// A repeated BYE needs an ack: the ack of the first one was lost.
    pub(crate) fn identify(&mut self, now: u64, packet: &Packet<'_>) -> Result<PeerId, DropReason> {
        let header = &packet.header;
        let hinted = self.directory.peers.get(header.dst_slot as usize);
        let index = match hinted {
            Some(peer) if peer.address.id == header.src_id => Some(header.dst_slot),
            _ => self.directory.by_id.get(&header.src_id).copied(),
        };
        if let Some(index) = index {
            let peer = PeerId(index);
            if self.directory.peers[index as usize].gone {
                return Err(DropReason::Gone);
            }
            if let Some(conn) = self.directory.conn_mut(peer) {
                // A repeated BYE needs an ack: the first one's was lost.
                let bye = |(frame, _)| matches!(frame, Frame::Bye { .. });
                if conn.session.refused {
                    if conn.session.refuse_again(packet) {
                        self.run_queue.mark_ready(conn);
                    }
                    return Err(DropReason::Gone);
                }
                if conn.session.dead || (conn.session.closed && !packet.frames().any(bye)) {
                    return Err(DropReason::Gone);
                }
                match conn.session.epoch {
                    Some(epoch) if epoch == header.src_epoch => {
                        let agreed = conn.session.version == header.version;
                        return self.is_genuine(peer, packet, agreed);
                    }
                    Some(_) => return Err(DropReason::Epoch),
                    None => {}
                }
            }
        }
        let hello = packet.frames().find_map(|(frame, _)| match frame {
            Frame::Hello(hello) => Some(hello.fields()),
            _ => None,
        });
        let hello = hello.ok_or(DropReason::Stranger)?;
        if hello.id != header.src_id || hello.epoch != header.src_epoch {
            return Err(DropReason::Invalid);
        }
        // Packets with tags reach the node only if the tag is right.
        let proof = match self.cfg.key_mark {
            0 => Proof::None,
            _ => Proof::Job,
        };
        self.on_first_hello(now, header, &hello, proof)
    }

    /// Checks a packet in the name of a peer that was heard before, ahead of all that marks its
    /// number as received. A HELLO in it must name the peer's own endpoint: otherwise the packet is
    /// none of the peer's, and its number must not make a duplicate of the genuine packet.
    /// `agreed`: its version is the agreed one.
    #[inline]
    fn is_genuine(
        &self,
        peer: PeerId,
        packet: &Packet<'_>,
        agreed: bool,
    ) -> Result<PeerId, DropReason> {
        if !agreed {
            return Err(DropReason::Version);
        }
        let Some(hello) = packet.first_hello() else {
            return Ok(peer);
        };
        let header = &packet.header;
        let token = self.peer_address(peer).map(|address| address.token);
        let named = (hello.id, hello.epoch, Some(hello.token));
        let genuine = named == (header.src_id, header.src_epoch, token);
        let trusting = self.cfg.errs(Mutation::TrustNames);
        (genuine || trusting)
            .then_some(peer)
            .ok_or(DropReason::Token)
    }

    /// Handles the first HELLO of a peer, whether its address is known or not.
    fn on_first_hello(
        &mut self,
        now: u64,
        header: &Header,
        hello: &Hello<'_>,
        proof: Proof,
    ) -> Result<PeerId, DropReason> {
        if hello.id == self.local.id {
            return Err(DropReason::Invalid); // loopback messages come in no packet
        }
        if self.directory.departed.former.contains(&hello.id) {
            return Err(DropReason::Gone);
        }
        let rails: Vec<RailAddr> = hello.rails.iter().collect();
        let (stats, events) = (&mut self.stats, &mut self.events);
        self.local.note_unknown_rails(stats, events, &hello.rails);
        if rails.is_empty() {
            return Err(DropReason::Invalid);
        }
        let known = self.directory.by_id.contains_key(&hello.id);
        if !known && !self.directory.admission.admits(proof) {
            return Err(DropReason::Unadmitted);
        }
        let mut address = Address::new(hello.id, hello.token, &rails);
        address.key_mark = self.cfg.key_mark;
        address.set_versions(hello.versions);
        let peer = self.directory.know(&address);
        let address = self.peer_address(peer).ok_or(DropReason::Invalid)?;
        if address.token != hello.token {
            return Err(DropReason::Token);
        }
        self.context().open_conn(peer);
        self.directory.met(peer, now);
        let strange = proof == Proof::None && !self.directory.is_named(peer);
        // Without acks on both sides nothing would be sent again that is lost.
        if strange && self.cfg.reliable && hello.reliable {
            let conn = self.directory.conn_mut(peer);
            conn.into_iter()
                .for_each(|conn| conn.require_validation(&self.cfg, &self.local));
        }
        if !known {
            self.events.push_back(Event::PeerMet { peer });
        }
        let most = self.cfg.paths_wanted(self.local.rails.len(), rails.len());
        self.context().add_paths(peer, &rails, most);
        if self.refuse_versions(now, peer, hello) || self.cfg.has_other_version(header, hello) {
            return Err(DropReason::Version);
        }
        if hello.reliable != self.cfg.reliable {
            let reliable = self.cfg.reliable;
            let why = Event::PeerMismatch { peer, reliable };
            self.refuse(now, peer, Some(hello), why);
            return Err(DropReason::Invalid);
        }
        let further = hello.further.iter();
        further.for_each(|(kind, _)| self.note_skipped(kind));
        let awaits = self.local.awaits();
        let conn = self.conn_mut(peer).ok_or(DropReason::Invalid)?;
        conn.session.note_first_hello(hello);
        conn.credit.raise(hello.credit);
        let paths = conn.paths.iter_mut();
        paths.for_each(|path| path.probing.set_due(now));
        conn.ask_sizes(hello.reliable);
        if awaits {
            conn.session.rails = rails;
        }
        self.context().agree(peer, hello);
        Ok(peer)
    }
}

impl Context<'_> {
    /// Opens a connection to a peer, unless there is one, with paths to the rails in its address.
    pub(crate) fn open_conn(&mut self, peer: PeerId) {
        let Some(entry) = self.directory.peers.get(peer.0 as usize) else {
            return;
        };
        if entry.conn.is_some() || entry.gone {
            return;
        }
        let mut conn = Box::new(Conn::new(peer));
        conn.session.algorithm = self.cfg.first_algorithm;
        if entry.address.id == self.local.id {
            conn.session.own = true;
            self.directory.peers[peer.0 as usize].conn = Some(conn);
            return;
        }
        let promised = &mut self.directory.promised;
        promised.open(&mut conn.credit, self.cfg);
        conn.life.opened_ns = self.descheduled.last_poll_ns;
        conn.session.own_epoch = self.local.epoch_for(entry.address.id);
        let agreed = self.cfg.versions.agreed(entry.address.versions());
        conn.session.version = agreed.unwrap_or(self.cfg.versions.newest);
        let rails: Vec<RailAddr> = entry.address.rails().iter().collect();
        self.directory.peers[peer.0 as usize].conn = Some(conn);
        self.add_paths(peer, &rails, FIRST_PATHS);
    }

    /// Adds paths to further rails of a peer; see [`Conn::add_paths`].
    pub(crate) fn add_paths(&mut self, peer: PeerId, remotes: &[RailAddr], most: usize) {
        let rails = 0..self.local.rails.len();
        let locals: Vec<_> = rails.map(|at| self.local.rail(at, self.cfg)).collect();
        let (remotes, pairs) = self.local.pairs_with(remotes);
        if let Some(conn) = self.conn_mut(peer) {
            conn.add_paths(&locals, &remotes, pairs, most);
        }
        self.ask_links(peer);
    }
}
