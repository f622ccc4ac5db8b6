//! Packets of a batch that continue a fragment, handled together ([`crate::incoming::run`]).

use crate::base::types::{Memory, PeerId};
use crate::incoming::run::Expected;
use crate::node::Node;
use marline_wire::Packet;

impl Node {
    /// Takes packets that continue `first`, a packet from `peer` that `handle_packet` has just
    /// taken; returns their number. `after`: the datagrams after `first`, each of the same length
    /// (the last may be shorter). The caller passes the remaining datagrams to `handle_packet`.
    /// `sealed` checks a head's CRC, and its tag (the second argument) if it has one.
    pub fn handle_run(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        first: &Packet<'_>,
        after: &[u8],
        sealed: impl Fn(&[u8], &[u8]) -> bool,
        memory: &mut impl Memory,
    ) -> usize {
        let (cfg, incoming) = (&self.cfg, &self.incoming);
        let conn = self.directory.conn(peer);
        let Some(expected) = conn.and_then(|conn| incoming.expect_run(cfg, conn, first, after))
        else {
            return 0;
        };
        let taken = incoming.land_run(cfg, &expected, after, sealed, memory);
        if taken > 0 {
            self.commit_run(now_ns, peer, &expected, taken);
        }
        taken as usize
    }

    /// Records that the next `taken` packets arrived and are in place, as `handle_packet` does for
    /// each packet; what it did for the first packet is not repeated.
    fn commit_run(&mut self, now: u64, peer: PeerId, expected: &Expected, taken: u64) {
        let len = expected.fragment();
        let (incoming, mut ctx) = self.incoming();
        incoming.commit_run(&mut ctx, now, expected, taken);
        let (reliable, every) = (self.cfg.reliable, self.cfg.ack_every);
        let (head_len, keyed) = (self.cfg.fragment_head_len(), self.cfg.key_mark != 0);
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[expected.at];
        path.stats.packets_received += taken;
        path.stats.bytes_received += taken * (head_len as u64 + len);
        if !reliable {
            if keyed {
                path.acks.on_run(taken as u32, false, now);
            }
            return self.context().touch(peer, now);
        }
        let eliciting = expected.is_eliciting();
        path.acks.on_run(taken as u32, eliciting, now);
        if path.acks.fresh() >= every {
            path.acks.make_urgent();
            self.context().wake(peer);
        }
        self.context().touch(peer, now);
    }
}
