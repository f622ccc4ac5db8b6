//! Peer teardown: ends every operation that names a peer.

use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::directory::Directory;
use crate::state::session::Death;

impl Node {
    /// Declares a peer dead and ends every operation that names it.
    pub(crate) fn tear_down(&mut self, now: u64, peer: PeerId, why: Death) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        conn.session.dead = true;
        // A peer that was never heard counts as silent since the first request.
        let since = match conn.life.heard_ns {
            0 => conn.life.owed_since.unwrap_or(now),
            heard => heard,
        };
        let unanswered_ns = conn.unanswered_ns(now);
        let mut silent_ns = now.saturating_sub(since);
        let heard = silent_ns < self.cfg.silence_ns() / 2;
        if heard && why == Death::Silent {
            silent_ns = unanswered_ns;
        }
        self.stats.peers_dead += 1;
        self.events.push_back(Event::PeerDead {
            peer,
            silent_ms: silent_ns / 1_000_000,
            refused: match why {
                Death::Refused(evidence) => Some(evidence),
                Death::Silent | Death::Lost => None,
            },
            heard,
            lost: why == Death::Lost,
        });
        self.directory.departs(peer, now);
        self.end_peer(now, peer, None);
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.forget_packets(&self.cfg);
        }
        let (incoming, mut ctx) = self.incoming();
        incoming.note_death(&mut ctx, peer);
    }

    /// Ends every operation that names a peer that will send nothing more. `arrived`: the peer's
    /// BYE reported that all messages below this number arrived.
    pub(crate) fn end_peer(&mut self, now: u64, peer: PeerId, arrived: Option<u32>) {
        let Directory {
            peers, promised, ..
        } = &mut self.directory;
        let entry = peers.get(peer.0 as usize);
        if let Some(conn) = entry.and_then(|entry| entry.conn.as_deref()) {
            promised.close(&conn.credit);
        }
        let (outgoing, mut ctx) = self.outgoing();
        outgoing.end_peer(&mut ctx, peer, arrived);
        let (incoming, mut ctx) = self.incoming();
        incoming.end_peer(&mut ctx, peer, now);
        self.events.push_back(Event::PeerOver { peer });
    }
}
