//! Keepalive probes. Every peer with outstanding operations is probed. If deaths end receives from
//! any source, all peers are probed while such a receive waits: it names no peer, and would
//! otherwise wait forever for a dead one.

use crate::base::types::PeerId;
use crate::node::Node;

impl Node {
    /// Probes every peer that was heard before, while a receive from any source waits.
    pub(crate) fn keepalive_all(&mut self, now: u64) {
        let peers = self.directory.peers.len();
        let Some(batch) = self.incoming.peers_to_ask(peers) else {
            return;
        };
        let end = batch.end;
        self.stats.visited += batch.len() as u64;
        for index in batch {
            let peer = PeerId(index as u32);
            if !self.directory.is_named(peer) {
                continue; // its death ends no receive
            }
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            let heard = conn.session.epoch.is_some() && !conn.session.dead && !conn.session.own;
            let mut ctx = self.context();
            let asked = heard && ctx.ask(now, &mut conn);
            self.put(conn);
            if asked {
                self.context().touch(peer, now);
            }
        }
        let any_source = self.incoming.any_source_mut();
        any_source.batch_over(&self.cfg, end, peers, now);
    }

    /// Probes a peer that has no outstanding operations; `false`: there is no such peer.
    pub(crate) fn keepalive_unused(&mut self, now: u64, peer: PeerId) -> bool {
        let Some(mut conn) = self.take(peer) else {
            return false;
        };
        let asked = conn.session.epoch.is_some() && !conn.session.own && self.cfg.reliable;
        let mut ctx = self.context();
        let asked = asked && ctx.ask(now, &mut conn);
        self.put(conn);
        if asked {
            self.context().touch(peer, now);
        }
        true
    }
}
