//! Deferred acks: an incoming ack is processed only after the message in the same packet was
//! delivered, since the application waits for the message. In a ping-pong the ack is processed
//! while the next message is in flight.

use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::FEW_PACKETS;
use crate::state::pending::{DeferredAck, Pending};
use marline_wire::{Ack, MasksView};

/// With more bytes in flight than this, an ack is not deferred, since it makes room for queued
/// data: two of the smallest packets that fill an Ethernet frame.
const DEFERRED_BYTES_MAX: u64 = 2 * 1_472;

impl Node {
    /// Processes the deferred ack. Call this before code that uses anything that the ack settles.
    #[inline]
    pub(crate) fn take_deferred(&mut self) {
        if let Some(ack) = self.pending.deferred_ack.take() {
            self.take_deferred_ack(&ack);
        }
    }

    fn take_deferred_ack(&mut self, late: &DeferredAck) {
        let DeferredAck { peer, at_ns, ack } = late;
        self.on_ack(*at_ns, *peer, &ack.view());
        let Some(conn) = self.conn_mut(*peer) else {
            return;
        };
        // The timer of packets sent after the ack's arrival starts at their own departure.
        if let Some(at) = conn.path_by_send_code(ack.path) {
            let path = &mut conn.paths[at];
            if let Some(sent_ns) = path.ring.oldest_waiting().map(|(_, sent)| sent.sent_ns) {
                path.pto.begin_at(sent_ns);
            }
        }
        if !conn.session.dead {
            conn.life.owed_since = conn.owes().then_some(*at_ns);
        }
        self.context().touch_soon(*peer, *at_ns);
    }
}

impl Pending {
    /// Defers the ack at the head of a packet on path `at`, if possible. Returns whether it did.
    #[inline]
    pub(crate) fn defer_ack(&mut self, now: u64, conn: &Conn, ack: &Ack<MasksView<'_>>) -> bool {
        let Some(ack) = ack.lone() else {
            return false;
        };
        let Some(at) = conn.path_by_send_code(ack.path) else {
            return false;
        };
        let path = &conn.paths[at];
        let few = path.ring.waiting() <= FEW_PACKETS && path.ring.in_flight() <= DEFERRED_BYTES_MAX;
        if !few || !path.healthy() || conn.paths.iter().any(|p| p.health.is_compared()) {
            return false;
        }
        debug_assert!(
            self.deferred_ack.is_none(),
            "taken before any other packet is"
        );
        self.deferred_ack = Some(DeferredAck {
            peer: conn.peer,
            at_ns: now,
            ack,
        });
        true
    }
}
