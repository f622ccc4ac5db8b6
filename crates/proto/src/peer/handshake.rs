//! Handshake: HELLO, and the probes of a new path. In an all-to-all all peers meet at once, so each
//! unnecessary packet is sent a million times.

use crate::base::types::{DropReason, Event, PathState, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::sent_packets::FrameRef;
use crate::tx::packet_builder::Builder;
use alloc::vec::Vec;
use marline_wire::{
    Address, Frame, Header, Hello, Packet, RailAddr, RailList, HELLO_RAIL_BYTES_MAX,
};

impl Node {
    /// Adds HELLO to a packet; every packet has it until it is acknowledged.
    pub(crate) fn greet(&self, conn: &Conn, builder: &mut Builder<'_, '_>) {
        if conn.session.hello_acked {
            return;
        }
        let mut rails = [0; HELLO_RAIL_BYTES_MAX];
        // If the packet has no room for all rails, the peer learns of fewer.
        let room = Hello::rail_bytes_in(builder.writer.room()).min(rails.len());
        let mut hello = self.hello(conn, &mut rails[..room]);
        // A rail update must be complete: a peer that has a revision accepts no more of it.
        if hello.revision > 0 && hello.rails.count() < self.local.named_addrs().len() {
            hello.revision = 0;
        }
        let kept = FrameRef::Hello(hello.revision);
        builder.control(&Frame::Hello(hello), Some(kept));
        if conn.waiting() == 0 {
            builder.flags |= Header::FLAG_ACK_NOW;
        }
    }
}

impl Conn {
    /// Called when a packet is filled. If more data waits, or will when a grant comes, each path is
    /// probed for its PMTU. (Peers that get little are not probed: in an all-to-all of small
    /// messages most bytes would be probes.)
    pub(crate) fn probe_sizes_if_bulk(&mut self, reliable: bool) {
        let long = !self.tx.rendezvous.is_empty() || !self.tx.replies.is_empty();
        if self.wide || !(long || !self.tx.queue.is_empty() || !self.tx.bulk.is_empty()) {
            return;
        }
        self.wide = true;
        if self.session.epoch.is_some() {
            self.ask_sizes(reliable);
        }
    }

    /// Starts PMTU probes on every path, if wanted. Several paths are all probed at once: their
    /// first measurements decide how they share a long message. Native mode has no acks that could
    /// answer: it assumes the sizes that both rails declare.
    pub(crate) fn ask_sizes(&mut self, reliable: bool) {
        let wanted = self.wide || self.paths.len() > 1;
        let paths = self.paths.iter_mut().filter(|_| wanted);
        paths.for_each(|path| path.mtu.resume(reliable));
    }

    /// Returns whether an unacknowledged packet waits on a path that will retransmit it.
    pub(crate) fn asks(&self) -> bool {
        let mut paths = self.paths.iter();
        paths.any(|p| p.ring.waiting() > 0 && !p.rail_down() && p.state() != PathState::Down)
    }
}

impl Node {
    /// Finds the sender of a packet: by the slot hint, by id, or by its HELLO.
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
            if let Some(conn) = self.conn(peer) {
                // A repeated BYE needs an ack: the first one's was lost.
                let bye = |(frame, _)| matches!(frame, Frame::Bye { .. });
                if conn.session.refused {
                    self.refuse_again(peer, packet);
                    return Err(DropReason::Gone);
                }
                if conn.session.dead || (conn.session.closed && !packet.frames().any(bye)) {
                    return Err(DropReason::Gone);
                }
                match conn.session.epoch {
                    Some(epoch) if epoch == header.src_epoch => return Ok(peer),
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
        self.on_first_hello(now, &hello)
    }

    /// Handles the first HELLO of a peer, known by address or not.
    fn on_first_hello(&mut self, now: u64, hello: &Hello<'_>) -> Result<PeerId, DropReason> {
        if hello.id == self.local.id {
            return Err(DropReason::Invalid); // loopback messages come in no packet
        }
        if self.directory.departed.former.contains(&hello.id) {
            return Err(DropReason::Gone);
        }
        let rails: Vec<RailAddr> = hello.rails.iter().collect();
        self.note_unknown_rails(&hello.rails);
        if rails.is_empty() {
            return Err(DropReason::Invalid);
        }
        let mut address = Address::new(hello.id, hello.token, &rails);
        address.key_mark = self.cfg.key_mark;
        let peer = self.directory.know(&address);
        let address = self.peer_address(peer).ok_or(DropReason::Invalid)?;
        if address.token != hello.token {
            return Err(DropReason::Token);
        }
        self.open_conn(peer);
        self.directory.met(peer, now);
        let most = self.cfg.paths_wanted(self.local.rails.len(), rails.len());
        self.add_paths(peer, &rails, most);
        if hello.reliable != self.cfg.reliable {
            self.refuse_settings(now, peer, hello);
            return Err(DropReason::Invalid);
        }
        let awaits = self.local.awaits();
        let conn = self.conn_mut(peer).ok_or(DropReason::Invalid)?;
        conn.session.epoch = Some(hello.epoch);
        conn.session.remote_slot = hello.slot;
        conn.credit.raise(hello.credit);
        conn.paths
            .iter_mut()
            .for_each(|path| path.probing.set_due(now));
        conn.ask_sizes(hello.reliable);
        if awaits {
            conn.session.rails = rails;
        }
        self.agree(peer, hello);
        Ok(peer)
    }

    /// Adds paths to further rails of a peer; see [`Conn::add_paths`].
    pub(crate) fn add_paths(&mut self, peer: PeerId, remotes: &[RailAddr], most: usize) {
        let rails = 0..self.local.rails.len();
        let locals: Vec<_> = rails.map(|at| self.local.rail(at, &self.cfg)).collect();
        let (remotes, pairs) = self.local.pairs_with(remotes);
        if let Some(conn) = self.conn_mut(peer) {
            conn.add_paths(&locals, &remotes, pairs, most);
        }
        self.ask_links(peer);
    }

    /// Counts rails of unknown kinds; each kind is reported once.
    pub(crate) fn note_unknown_rails(&mut self, rails: &RailList<'_>) {
        for kind in rails.unknown() {
            self.stats.unknown_rails += 1;
            if !self.local.unknown_kinds.contains(&kind) {
                self.local.unknown_kinds.push(kind);
                self.events.push_back(Event::UnknownRailKind { kind });
            }
        }
    }
}
