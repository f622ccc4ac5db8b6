//! Rails whose address changes while they are in use (docs/design/moving-addresses.md).
//!
//! HELLO is sent again with the current rails and a revision. A peer that receives a newer revision
//! opens the links of the changed rail's paths anew and probes these paths; an older HELLO changes
//! nothing. Libraries without revisions use the other rails. A rail whose interface is gone has no
//! address until the interface is back.

use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::path::Path;
use alloc::vec::Vec;
use marline_wire::{Hello, RailAddr};

impl Node {
    /// Sets a new address of a local rail and tells all peers.
    pub fn on_rail_address(&mut self, now_ns: u64, rail: usize, addr: RailAddr) {
        self.take_deferred();
        let Some(spec) = self.local.rails.get_mut(rail).filter(|r| r.addr != addr) else {
            return;
        };
        let new = !spec.addr.is_some();
        if new {
            spec.datagram_max = addr.datagram_max.into();
        }
        spec.addr = addr;
        self.local.writes |= addr.writes() && !spec.standby;
        self.local.revision += 1;
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(conn) = self.conn_mut(peer) else {
                continue;
            };
            if conn.session.own || conn.session.is_over() {
                continue;
            }
            conn.session.hello_acked = false;
            conn.announce_rails();
            if new {
                let theirs = conn.session.rails.clone();
                self.context().add_new_rails(now_ns, peer, &theirs);
            }
            self.context().wake(peer);
            self.context().touch(peer, now_ns);
        }
    }

    /// Handles a HELLO of a known peer.
    pub(crate) fn on_hello(&mut self, now: u64, peer: PeerId, hello: &Hello<'_>) {
        let address = self.peer_address(peer);
        let theirs = address.is_some_and(|a| (a.id, a.token) == (hello.id, hello.token));
        let Some(conn) = self.conn_mut(peer).filter(|_| theirs) else {
            return;
        };
        if conn.session.epoch != Some(hello.epoch) {
            return;
        }
        conn.session.remote_slot = hello.slot;
        if hello.revision <= conn.session.revision {
            return;
        }
        conn.session.revision = hello.revision;
        self.take_deferred();
        let named: Vec<RailAddr> = hello.rails.iter().collect();
        let behind = named.iter().filter_map(RailAddr::behind);
        let rails: Vec<RailAddr> = named.iter().copied().chain(behind).collect();
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        self.recover(&mut conn, |recovery, conn| {
            recovery.change_addresses(now, conn, &rails)
        });
        self.put(conn);
        self.context().add_new_rails(now, peer, &named);
        if let Some(conn) = self.conn_mut(peer) {
            conn.session.rails = named;
        }
        self.context().touch(peer, now);
    }
}

impl Context<'_> {
    /// Makes and probes paths to rails of a peer that are new or were unreachable before.
    fn add_new_rails(&mut self, now: u64, peer: PeerId, rails: &[RailAddr]) {
        let Some(before) = self.conn(peer).map(|conn| conn.paths.len()) else {
            return;
        };
        let most = self.cfg.paths_wanted(self.local.rails.len(), rails.len());
        self.add_paths(peer, rails, most);
        let reliable = self.cfg.reliable;
        let Some(conn) = self.conn_mut(peer).filter(|conn| conn.paths.len() > before) else {
            return;
        };
        for path in &mut conn.paths[before..] {
            path.probing.set_due(now);
            path.probing.request();
        }
        conn.ask_sizes(reliable);
        self.wake(peer);
        self.standby_for_new(peer);
    }

    /// Adds standby paths for a peer's new rails if standby rails of this peer are already in use.
    /// Standby paths are made for all paths at once, when no path carries packets, which may have
    /// been before these rails were known.
    fn standby_for_new(&mut self, peer: PeerId) {
        let (cfg, local) = (self.cfg, self.local);
        let stands_in = |path: &Path| local.rails[path.local as usize].standby;
        let uses = |conn: &&mut Conn| conn.paths.iter().any(stands_in);
        let Some(conn) = self.directory.conn_mut(peer).filter(uses) else {
            return;
        };
        if conn.add_standby(cfg, local) {
            self.ask_links(peer);
        }
    }
}

impl Recovery<'_> {
    /// Follows the rails of the peer to their new addresses.
    fn change_addresses(&mut self, now: u64, conn: &mut Conn, rails: &[RailAddr]) {
        for at in 0..conn.paths.len() {
            let to = conn.paths[at].to;
            let now_at = rails.iter().find(|rail| rail.index == to.index);
            let moved = |new: &&RailAddr| new.kind == to.kind && new.bytes() != to.bytes();
            if let Some(&new) = now_at.filter(moved) {
                self.change_address(now, conn, at, new);
            }
        }
        self.ask_links_of(conn);
        self.actions.mark_ready();
    }

    /// The peer's rail of path `at` has a new address. Packets in flight are lost. If other paths
    /// carry packets, the path must first answer at the new address.
    fn change_address(&mut self, now: u64, conn: &mut Conn, at: usize, to: RailAddr) {
        if conn.paths[at].carries() {
            self.path_down(now, conn, at, PathReason::Moved);
        }
        self.requeue_in_flight(conn, at);
        let path = &mut conn.paths[at];
        if let Some(link) = path.link.id {
            self.actions.leave_link(path.local as usize, link);
        }
        path.acks.renew_native(now);
        path.link.on_new_address();
        self.actions.leave_host(path.to);
        path.to = to;
        path.validation = conn.session.new_address;
        path.probing.set_due(now);
        path.pto.restart(now);
        path.probing.request();
    }
}
