//! Rails whose address changes while they are in use (docs/design/moving-addresses.md).
//!
//! HELLO is said again, with the rails as they are now and a revision. A peer that gets a newer one
//! than it has makes the links of that rail's paths anew and asks these paths; one that came late
//! changes nothing, and libraries that know no revisions go on by the other rails. A rail that
//! waits for its interface (docs/design/moving-addresses.md) has no address before that.

use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::link::PathLink;
use crate::state::path::Path;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{Hello, RailAddr};

impl Node {
    /// A local rail has another address from now on: all peers are told.
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
            conn.say_rails();
            if new {
                let theirs = conn.session.rails.clone();
                self.meet_rails(now_ns, peer, &theirs);
            }
            self.wake(peer);
            self.touch(peer, now_ns);
        }
    }

    /// HELLO of a peer that is known already.
    pub(crate) fn on_hello(&mut self, now: u64, peer: PeerId, hello: &Hello<'_>) {
        let address = self.peer_address(peer);
        let theirs = address.is_some_and(|a| (a.id, a.token) == (hello.id, hello.token));
        let Some(conn) = self.conn_mut(peer).filter(|_| theirs) else {
            return;
        };
        conn.session.remote_slot = hello.slot;
        let known = conn.session.revision;
        if conn.session.epoch != Some(hello.epoch) || hello.revision <= known {
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
        for at in 0..conn.paths.len() {
            let to = conn.paths[at].to;
            let now_at = rails.iter().find(|rail| rail.index == to.index);
            let moved = |new: &&RailAddr| new.kind == to.kind && new.bytes() != to.bytes();
            if let Some(&new) = now_at.filter(moved) {
                self.lead_elsewhere(now, &mut conn, at, new);
            }
        }
        self.ask_links_of(&mut conn);
        self.agenda.mark_ready(&mut conn);
        self.put(conn);
        self.meet_rails(now, peer, &named);
        if let Some(conn) = self.conn_mut(peer) {
            conn.session.rails = named;
        }
        self.touch(peer, now);
    }

    /// Paths to rails of a peer that were not there, or that none of ours reached: they are asked.
    fn meet_rails(&mut self, now: u64, peer: PeerId, rails: &[RailAddr]) {
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
            path.probe_at = now;
            path.want_ping = true;
        }
        conn.ask_sizes(reliable);
        self.wake(peer);
        self.stand_in_for_new(peer);
    }

    /// Where what stands behind rails carries, it does so for those that came as well: it stands in
    /// for all when no path carries, which may have been before.
    fn stand_in_for_new(&mut self, peer: PeerId) {
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        let stands_in = |path: &Path| self.local.rails[path.local as usize].standby;
        if conn.paths.iter().any(stands_in) {
            self.stand_in(&mut conn);
        }
        self.put(conn);
    }

    /// The peer's rail of path `at` is at another address: what was under way is lost, and the path
    /// has to answer there before it carries again, where others do meanwhile.
    fn lead_elsewhere(&mut self, now: u64, conn: &mut Box<Conn>, at: usize, to: RailAddr) {
        if conn.paths[at].carries() {
            self.path_down(now, conn, at, PathReason::Moved);
        }
        self.evacuate(conn, at);
        let path = &mut conn.paths[at];
        if let Some(link) = path.link.id {
            self.links.unused.push((path.local as usize, link));
        }
        path.tell_native(now);
        path.link = PathLink::new(false);
        (path.to, path.flow) = (to, 0);
        (path.probe_at, path.repair_from) = (now, now);
        path.want_ping = true;
    }
}

impl Conn {
    /// HELLO is to leave soon, on each path that may carry it.
    pub(crate) fn say_rails(&mut self) {
        let paths = self.paths.iter_mut().filter(|p| !p.rail_down);
        paths.for_each(|path| path.want_ping = true);
    }
}
