//! Negotiation of the payload algorithm, and refusal of peers with incompatible settings.
//!
//! Each HELLO has the algorithm that its sender requests and all algorithms that it can verify.
//! Every packet names its own algorithm in the header, so the agreement only decides what is
//! *sent*. Until the peer's HELLO has come, [`Config::first_algorithm`] is sent.

use crate::base::config::Config;
use crate::base::types::{Event, PeerId, Spans, Transmit};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::context::Context;
use alloc::boxed::Box;
use marline_wire::{Hello, FIRST_ALGORITHM};

/// Refusals sent per path. A peer without software reliability retransmits nothing that could
/// trigger another refusal, so the refusal is repeated as often as a BYE would be.
const REFUSALS: u16 = 3;

impl Config {
    /// Returns whether payloads with algorithm `number` can be verified here.
    #[inline]
    pub(crate) fn knows_algorithm(&self, number: u8) -> bool {
        number < 32 && self.algorithms_mask() >> number & 1 == 1
    }

    /// Mask of the local algorithms for HELLO (bit n: number n).
    #[inline]
    pub(crate) fn algorithms_mask(&self) -> u32 {
        let known = self.algorithms.iter().filter(|n| **n < 32);
        known.fold(1 << FIRST_ALGORITHM, |mask, n| mask | 1 << n)
    }

    /// The more trusted one of both requests. [`FIRST_ALGORITHM`] replaces a request that one side
    /// does not know and so cannot rank. A peer can then neither disable nor weaken the local
    /// checksums, and both sides agree.
    fn agreed(&self, hello: &Hello<'_>) -> u8 {
        let both = |n: u8| self.knows_algorithm(n) && hello.algorithms >> n & 1 == 1;
        let wishes = [self.algorithm, hello.algorithm].map(|n| match both(n) {
            true => n,
            false => FIRST_ALGORITHM,
        });
        let mut by_trust = self.algorithms.iter().copied();
        by_trust
            .find(|n| wishes.contains(n))
            .unwrap_or(FIRST_ALGORITHM)
    }
}

impl Node {
    /// Ends all operations with a peer whose settings differ, and tells the peer: otherwise its
    /// operations would wait forever for acks or data.
    /// `hello`: the peer's, unless it has not spoken yet.
    pub(crate) fn refuse(
        &mut self,
        now: u64,
        peer: PeerId,
        hello: Option<&Hello<'_>>,
        event: Event,
    ) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        (conn.session.dead, conn.session.refused) = (true, true);
        conn.session.hello_acked = false;
        if let Some(hello) = hello {
            conn.session.remote_slot = hello.slot;
        }
        if hello.is_none_or(|hello| !hello.refused) {
            conn.session.refusals_due = REFUSALS * conn.paths.len() as u16;
        }
        self.stats.peers_dead += 1;
        self.events.push_back(event);
        self.directory.departs(peer, now);
        self.end_peer(now, peer, None);
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.forget_packets(&self.cfg);
        }
        let (incoming, mut ctx) = self.incoming();
        incoming.note_death(&mut ctx, peer);
        if let Some(conn) = self.directory.conn_mut(peer) {
            self.run_queue.mark_ready(conn);
        }
    }

    /// Builds the HELLO for a refused peer, if one is due. This HELLO is not retransmitted: a peer
    /// with software reliability repeats its own until answered, and a peer without it sends no
    /// acks.
    pub(crate) fn refusal_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let due = conn.session.refusals_due;
        let count = conn.paths.len();
        let mut turns = (0..count).map(|i| (due as usize + i) % count);
        let at = turns.find(|&at| {
            let path = &conn.paths[at];
            due > 0 && path.link.up && !path.rail_down() && path.has_room(self.local.full)
        })?;
        conn.session.refusals_due -= 1;
        let limit = conn.paths[at].datagram_max();
        let mut b = self.begin(conn, limit, out, spans);
        b.frames.clear();
        self.finish(now, conn, at, b, false, false)
    }
}

impl Context<'_> {
    /// Agrees on an algorithm with a new peer and releases waiting sends; emits an event if the
    /// result differs from either wish.
    pub(crate) fn agree(&mut self, peer: PeerId, hello: &Hello<'_>) {
        let (preference, agreed) = (hello.algorithm, self.cfg.agreed(hello));
        if let Some(conn) = self.conn_mut(peer) {
            conn.session.algorithm = agreed;
            conn.session.algorithms = hello.algorithms;
        }
        if preference != agreed || self.cfg.algorithm != agreed {
            let event = Event::AlgorithmAgreed {
                peer,
                preference,
                agreed,
            };
            self.events.push_back(event);
        }
        self.wake(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_wire::{HelloFields, RailList, Versions};

    /// The algorithm agreed if one side requests `mine` and the other `theirs` and knows only
    /// `known`.
    fn agreed(mine: u8, theirs: u8, known: u32) -> u8 {
        let config = Config {
            algorithm: mine,
            algorithms: &[1, 2, 3, 4, 0],
            ..Config::default()
        };
        config.agreed(&Hello {
            slot: 0,
            id: 0,
            token: 0,
            epoch: 0,
            algorithm: theirs,
            algorithms: known,
            reliable: true,
            eager_puts: false,
            refused: false,
            credit: 0,
            revision: 0,
            versions: Versions::OURS,
            of_destination: None,
            further: HelloFields::NONE,
            rails: RailList::EMPTY,
        })
    }

    #[test]
    fn the_more_trusted_wish_wins() {
        for (a, b, both) in [(4, 4, 4), (0, 0, 0), (4, 0, 4), (1, 4, 1), (3, 2, 2)] {
            assert_eq!(agreed(a, b, 0b11111), both);
            assert_eq!(agreed(b, a, 0b11111), both);
        }
    }

    #[test]
    fn an_algorithm_unknown_to_one_side_is_not_used() {
        // A newer peer wishes number 20 or 255, unknown to this side.
        assert_eq!(agreed(4, 20, 1 << 20 | 0b11111), 1);
        assert_eq!(agreed(4, 255, !0), 1);
        // An older peer does not know the local wish.
        assert_eq!(agreed(4, 20, 1 << 20 | 0b11), 1);
        assert_eq!(agreed(4, 2, 0b111), 1);
        assert_eq!(agreed(4, 4, 0), 1);
    }

    #[test]
    fn a_peer_that_does_not_know_our_preference_cannot_weaken_it() {
        assert_eq!(agreed(2, 0, 0b11), 1, "sums are not switched off");
        assert_eq!(agreed(2, 3, 0b1011), 1);
        // The peer's side, which does not know the requested algorithm.
        assert_eq!(agreed(0, 20, !0), 1);
    }
}
