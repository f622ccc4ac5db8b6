//! Isolation of paths that corrupt packets, and which bytes of a message one checksum covers.
//!
//! A corrupted packet costs a retransmission; many of them mean that a NIC, a cable or a port is
//! failing. Only the receiver can tell corruption from loss, and only the sender can choose another
//! path. So the receiver counts damage ([`Damage`]) and above the limit sends CORRUPT, reliably,
//! over any path. The sender then takes the path down and isolates it ([`Isolation`]): before the
//! path is reinstated, full packets, wholly covered by the head's CRC, must arrive many times in a
//! row. The number doubles with each relapse, so that a path with rare corruption is not reinstated
//! again and again.
//!
//! The last usable path is never left. If every path is as bad, all are used.

use crate::base::mutation::Mutation;
use crate::base::types::{DropReason, Event, PathReason, PathState, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::health_table::Input;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use marline_wire::Header;

/// Least interval between two probes of an isolated path, and the longest after a lost probe.
const ISOLATION_PROBE_NS: u64 = 1_000_000;
const ISOLATION_PROBE_CAP_NS: u64 = 100_000_000;
/// A peer that does not poll answers within three ticks of its progress thread (promise 3).
const ANSWER_NS: u64 = 30_000_000;
/// If all paths corrupt, CORRUPT frames are ignored for this long.
const ALL_CORRUPT_NS: u64 = 1_000_000_000;

impl Path {
    /// Requests the next probe of an isolated path, unless the last probe may still be answered.
    /// Returns true if the last probe counts as lost; the run of successful probes then starts
    /// anew, and later.
    pub(crate) fn next_isolation_probe(&mut self, now: u64) -> bool {
        let shortest = ISOLATION_PROBE_NS.max(self.rtt.four_ns());
        let waits = self.ring.waiting() > 0;
        if waits && now < self.health.isolation_asked_ns() + ANSWER_NS {
            self.probing.set_due(now + shortest);
            return false;
        }
        let mut every_ns = shortest;
        if waits {
            // (Not `clamp`: on a very slow path `shortest` exceeds the cap.)
            let doubled = 2 * self.probing.every_ns();
            every_ns = doubled.min(ISOLATION_PROBE_CAP_NS).max(shortest);
        }
        self.probing.restart(now, every_ns);
        self.probing.set_requested(!self.rail_down());
        self.health.on_isolation_probe(now, waits);
        waits
    }
}

impl Conn {
    /// After an ack on a path that is not in use: returns the input that brings the path up, if it
    /// may be used again.
    pub(crate) fn reinstated(&mut self, at: usize) -> Option<Input> {
        let alone = !self.others_answer(at);
        let path = &mut self.paths[at];
        let sent_ns = path.loss.newest_acked_sent_ns();
        path.health.on_answer(alone, sent_ns)
    }

    /// True if any other path is healthy. (A path with some corruption still carries more than a
    /// silent path.)
    fn others_answer(&self, at: usize) -> bool {
        let mut others = self.paths.iter().enumerate().filter(|(i, _)| *i != at);
        others.any(|(_, p)| p.healthy())
    }

    fn others_usable(&self, at: usize) -> bool {
        let mut others = self.paths.iter().enumerate().filter(|(i, _)| *i != at);
        others.any(|(_, p)| p.usable())
    }
}

impl Node {
    /// Handles a packet whose head failed its CRC. If enough of the claimed header is right to find
    /// a path, a corrupted packet is counted there; nothing else happens. Returns false if nothing
    /// in the header names this node: then the packet is foreign, not corrupted.
    pub fn on_bad_head(&mut self, bytes: &[u8]) -> bool {
        let Some(header) = Header::claimed(bytes) else {
            return false;
        };
        let (id, token) = (
            header.dst_id == self.local.id,
            header.dst_token == self.local.token,
        );
        let peer = self
            .directory
            .by_id
            .get(&header.src_id)
            .copied()
            .map(PeerId);
        if let Some(peer) = peer.filter(|_| id && token) {
            self.context().note_bad_head(peer, &header);
        }
        id || token || peer.is_some()
    }

    /// Handles CORRUPT: the peer receives corrupted packets on this path.
    pub(crate) fn on_corrupt(&mut self, now: u64, peer: PeerId, code: u16) {
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        let at = conn.path_by_send_code(code);
        if let Some(at) = at.filter(|&at| conn.paths[at].state() != PathState::Down) {
            let leave = |recovery: &mut Recovery<'_>, conn: &mut Conn| {
                recovery.leave_corrupt(now, conn, at)
            };
            let left = self.recover(&mut conn, leave);
            let path = &conn.paths[at];
            self.events.push_back(Event::PathCorrupts {
                peer,
                rail: path.local,
                remote_rail: path.to.index,
                damaged: 0,
                of: 0,
                by_peer: true,
                left,
            });
        }
        self.put(conn);
    }
}

impl Context<'_> {
    /// Counts a rejected packet of a known path and returns the reason. Also sets the peer's
    /// deadline: a message that the packet began is still expected, and the peer may die meanwhile.
    pub(crate) fn note_refused(
        &mut self,
        now: u64,
        peer: PeerId,
        at: usize,
        reason: DropReason,
    ) -> DropReason {
        if !self.cfg.errs(Mutation::Unasked) {
            self.touch(peer, now);
        }
        if reason != DropReason::CorruptPayload {
            return reason;
        }
        if let Some(conn) = self.conn_mut(peer) {
            conn.paths[at].stats.corrupt += 1;
        }
        self.note_damage(peer, at);
        reason
    }

    fn note_bad_head(&mut self, peer: PeerId, header: &Header) {
        let code = header.path.swap_bytes();
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let known = conn.session.epoch == Some(header.src_epoch) && !conn.session.is_over();
        let Some(at) = conn.path_by_send_code(code).filter(|_| known) else {
            return;
        };
        // A copy of a packet that arrived says nothing of the path: any host can have damaged it.
        let copied = conn.paths[at].acks.is_duplicate(header.number);
        if !copied {
            self.note_damage(peer, at);
        }
    }

    /// Counts a corrupted packet of a path; above the limit, tells the sender.
    fn note_damage(&mut self, peer: PeerId, at: usize) {
        let limit = self.cfg.corrupt_limit_ppm;
        let Some(conn) = self.conn_mut(peer).filter(|_| limit > 0) else {
            return;
        };
        let path = &mut conn.paths[at];
        let received = path.stats.packets_received;
        let Some((damaged, of)) = path.health.on_damage(received, limit) else {
            return;
        };
        let event = Event::PathCorrupts {
            peer,
            rail: path.local,
            remote_rail: path.to.index,
            damaged,
            of,
            by_peer: false,
            left: false,
        };
        let frame = FrameRef::Corrupt(path.recv_code());
        if !conn.tx.control.contains(&frame) {
            conn.tx.control.push_back(frame);
        }
        self.wake(peer);
        self.events.push_back(event);
    }
}

impl Recovery<'_> {
    /// Takes a corrupting path down if there is a better one; returns whether it did.
    fn leave_corrupt(&mut self, now: u64, conn: &mut Conn, at: usize) -> bool {
        if !conn.others_usable(at) {
            // The isolated paths are no worse than this one: use all again.
            conn.all_corrupt_until = now + ALL_CORRUPT_NS;
            for at in 0..conn.paths.len() {
                let path = &mut conn.paths[at];
                if path.health.is_isolated() {
                    path.health.end_isolation(now);
                    path.bring_up(now, Input::NoBetter);
                    let event = conn.path_changed(at, PathReason::NoBetter, 0);
                    self.actions.event(event);
                }
            }
            return false;
        }
        if now < conn.all_corrupt_until {
            return false;
        }
        self.path_down(now, conn, at, PathReason::Corrupt);
        let path = &mut conn.paths[at];
        let left = path.state() == PathState::Down;
        if left {
            path.stats.corrupt_downs += 1;
        }
        left
    }
}
