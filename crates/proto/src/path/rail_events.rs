//! Events of rails: down or up, no room, and packets too big for a network on the way.

use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::path::Path;

impl Node {
    /// Notes that a local rail went down or came back (link state, socket error).
    pub fn on_rail(&mut self, now_ns: u64, rail: usize, down: bool) {
        self.take_deferred();
        if rail >= self.local.rails.len() || self.local.uptimes[rail].is_down() == down {
            return;
        }
        self.local.uptimes[rail].set(now_ns, down, self.cfg.neighbour_resolution_ns());
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                recovery.on_rail(now_ns, conn, rail, down);
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }

    /// Sets the local rails without room (bit n: rail n). No packets are built for them. Peers that
    /// wait for a rail that has room again are queued.
    #[inline]
    pub fn set_full(&mut self, rails: u32) {
        let back = self.local.full & !rails;
        self.local.full = rails;
        if back != 0 {
            self.run_queue.unpark(&mut self.directory);
        }
    }

    /// Parks all peers with packets to send, since no rail has room.
    #[cold]
    pub fn stall(&mut self) {
        self.run_queue.park(&mut self.directory);
    }

    /// Notes that a local rail has had no room for long: frames and acks of its paths leave on
    /// other paths where possible. `stuck`: for so long that its paths are given up where other
    /// paths work, and their packets in flight are requeued there.
    pub fn on_full(&mut self, now_ns: u64, rail: usize, stuck: bool) {
        self.take_deferred();
        if !self.cfg.reliable {
            return;
        }
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                recovery.on_full(now_ns, conn, rail, stuck);
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }

    /// Notes that packets of more than `max` bytes do not pass on this link of a local rail.
    /// Packets in flight are requeued in smaller pieces.
    pub fn on_too_big(&mut self, now_ns: u64, rail: usize, link: u32, max: usize) {
        self.take_deferred();
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                for at in 0..conn.paths.len() {
                    let path = &mut conn.paths[at];
                    let ours = path.is_on(rail, link);
                    // A size probe that is too big says nothing about the packets in flight.
                    if ours && path.mtu.on_too_big(max, now_ns) {
                        recovery.requeue_in_flight(conn, at);
                    }
                }
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }
}

impl Recovery<'_> {
    /// Handles a local rail of the connection that went down or came back.
    fn on_rail(&mut self, now: u64, conn: &mut Conn, rail: usize, down: bool) {
        for at in 0..conn.paths.len() {
            if conn.paths[at].local as usize != rail {
                continue;
            }
            if down && conn.paths[at].usable() {
                conn.begin_gap(at, true);
                self.path_down(now, conn, at, PathReason::RailDown);
            }
            // On a reliable rail, packets in flight were lost with the connection.
            if !down && !conn.paths[at].policy.lossy {
                self.requeue_in_flight(conn, at);
            }
            let path = &mut conn.paths[at];
            path.acks.renew_native(now);
            path.health.set_rail_down(down || !path.link.up);
            path.probing.set_due(now);
            path.pto.restart(now);
            path.probing
                .request_if(!path.rail_down() && conn.session.epoch.is_some());
            if down {
                conn.doubt_reachability(now);
            }
        }
        conn.note_cut(now, &self.local.uptimes);
        self.actions.mark_ready();
    }

    /// Handles that a local rail of the connection has had no room for long.
    fn on_full(&mut self, now: u64, conn: &mut Conn, rail: usize, stuck: bool) {
        for at in 0..conn.paths.len() {
            let path = &conn.paths[at];
            if path.local as usize != rail || !path.usable() || conn.session.is_over() {
                continue;
            }
            if stuck {
                self.path_down(now, conn, at, PathReason::NoRoom);
                continue;
            }
            let beside = |p: &Path| p.usable() && p.local != rail as u8;
            let others = conn.paths.iter().any(beside);
            let path = &mut conn.paths[at];
            if others && (path.ring.waiting() > 0 || path.acks.any()) {
                path.probing.request();
                self.actions.events(conn.suspect(at));
                conn.doubt_reachability(now);
            }
        }
        self.actions.mark_ready();
    }
}
