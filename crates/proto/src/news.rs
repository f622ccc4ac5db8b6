//! What the sockets and links of a rail tell: down or back, packets too big for a network on the
//! way, no listener at the other end.

use crate::node::Node;
use crate::path::Path;
use crate::types::PeerId;
use marline_wire::RailAddr;

/// So many refusals (ICMP port unreachable) over so long a time, with nothing heard in between,
/// mean that the process is gone.
const REFUSALS: u32 = 3;
const REFUSALS_NS: u64 = 100_000_000;

impl Node {
    /// A local rail went down or came back (link state, socket error).
    pub fn on_rail(&mut self, now_ns: u64, rail: usize, down: bool) {
        self.take_late();
        if rail >= self.rails.len() || self.rail_down[rail] == down {
            return;
        }
        self.rail_down[rail] = down;
        for index in 0..self.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            for at in 0..conn.paths.len() {
                if conn.paths[at].local as usize != rail {
                    continue;
                }
                if down && conn.paths[at].usable() {
                    self.path_down(now_ns, &mut conn, at);
                }
                let path = &mut conn.paths[at];
                path.rail_down = down;
                path.probe_at = now_ns;
                path.repair_from = now_ns;
                path.want_ping |= !down && conn.epoch.is_some();
            }
            Node::mark_ready(&mut self.ready, &mut conn);
            self.put(conn);
            self.touch(peer, now_ns);
        }
    }

    /// Packets of more than `max` bytes to this address do not pass: what was lost by that is
    /// cut smaller and sent again.
    pub fn on_too_big(&mut self, now_ns: u64, rail: usize, to: &RailAddr, max: usize) {
        self.take_late();
        for index in 0..self.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            for at in 0..conn.paths.len() {
                let path = &mut conn.paths[at];
                let ours = path.local as usize == rail && same_host(&path.to, to);
                // A probe that is too big changes nothing for what is under way.
                if ours && path.too_big(max, now_ns) {
                    self.evacuate(&mut conn, at);
                }
            }
            self.put(conn);
            self.touch(peer, now_ns);
        }
    }

    /// The host at this address has no listener on that port: perhaps the process is gone.
    pub fn on_refused(&mut self, now_ns: u64, from: &RailAddr) {
        self.take_late();
        for index in 0..self.peers.len() {
            let peer = PeerId(index as u32);
            let Some(conn) = self.conn_mut(peer) else {
                continue;
            };
            let ours = |p: &Path| same_host(&p.to, from) && p.to.port == from.port;
            if conn.dead || conn.closed || !conn.paths.iter().any(ours) {
                continue;
            }
            // Whoever is gone needs no BYE.
            conn.bye_heard |= conn.byes > 0;
            if conn.refused == 0 {
                conn.refused_since = now_ns;
            }
            conn.refused += 1;
            let gone = conn.refused >= REFUSALS && now_ns - conn.refused_since >= REFUSALS_NS;
            if gone {
                self.bury(now_ns, peer, true);
            }
        }
    }
}

fn same_host(a: &RailAddr, b: &RailAddr) -> bool {
    a.reaches(b) && a.ip == b.ip
}
