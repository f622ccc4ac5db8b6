//! Paths on which packets arrive damaged, and what of a message one sum covers.
//!
//! A damaged packet costs a repair, and many of them say that a card, a cable or a port is failing.
//! Only the receiver can tell damage from loss, and only the sender can send elsewhere. So the
//! receiver counts ([`Damage`]); above the limit it says CORRUPT, reliably, over any path; the
//! sender leaves the path like one that fell, and puts it in [`Quarantine`]: full packets whose
//! every byte is under the head's CRC have to come through many times in a row. How many doubles
//! with each relapse, so that a path which damages few packets is not taken back again and again.
//!
//! The last usable path is never left. If every path is as bad, all are used.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{DropReason, Event, PathReason, PathState, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::tx::packet_builder::Builder;
use marline_wire::{Header, DATA_LEN};

/// Shortest time between two probes, and the longest after one that was lost.
const QUARANTINE_PROBE_NS: u64 = 1_000_000;
const QUARANTINE_PROBE_CAP_NS: u64 = 100_000_000;
/// A peer that does not poll answers within three ticks of its progress thread (promise 3).
const ANSWER_NS: u64 = 30_000_000;
/// When all paths corrupt, complaints are not heard for so long.
const ALL_CORRUPT_NS: u64 = 1_000_000_000;

impl Path {
    /// Asks the next probe of a path on trial, unless the last one may still be answered. `true`:
    /// it was not; so from the start, and later.
    pub(crate) fn next_quarantine_probe(&mut self, now: u64) -> bool {
        let shortest = QUARANTINE_PROBE_NS.max(4 * self.srtt_ns);
        let waits = self.ring.waiting() > 0;
        if waits && now < self.quarantine.asked_ns + ANSWER_NS {
            self.probe_at = now + shortest;
            return false;
        }
        if waits {
            self.quarantine.clean = 0;
            // (Not `clamp`: on a very slow path the shortest is longer than the cap.)
            self.probe_every = (2 * self.probe_every)
                .min(QUARANTINE_PROBE_CAP_NS)
                .max(shortest);
        } else {
            self.probe_every = shortest;
        }
        self.probe_at = now + self.probe_every;
        self.want_ping = !self.rail_down;
        self.quarantine.asked_ns = now;
        waits
    }
}

impl Conn {
    /// Something came through on a path that is not in use; whether it may be used again.
    pub(crate) fn acquitted(&mut self, at: usize) -> bool {
        let alone = !self.others_answer(at);
        let path = &mut self.paths[at];
        let free = !path.quarantine.active || path.quarantine.passed() || alone;
        if free && path.quarantine.active {
            path.quarantine.end(path.newest_acked_sent_ns);
        }
        free
    }

    /// Returns whether any other path is beyond doubt. (One that damages some carries more than one
    /// that is silent.)
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
    /// A packet of a known path was refused: why, again. What it began is waited for all the same,
    /// and its sender may die before that comes.
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

    /// A packet arrived whose head failed its check. If enough of what it claims is right to know
    /// its path, that path is the worse for it; nothing else comes of it. `false`: nothing in it
    /// is ours, so it is no damaged packet but a stranger's.
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
            self.note_bad_head(peer, &header);
        }
        id || token || peer.is_some()
    }

    fn note_bad_head(&mut self, peer: PeerId, header: &Header) {
        let code = header.path.swap_bytes();
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let known = conn.session.epoch == Some(header.src_epoch) && !conn.session.is_over();
        if let Some(at) = conn.path_by_send_code(code).filter(|_| known) {
            self.note_damage(peer, at);
        }
    }

    /// A damaged packet of a path; above the limit its sender is told.
    fn note_damage(&mut self, peer: PeerId, at: usize) {
        let limit = self.cfg.corrupt_limit_ppm;
        let Some(conn) = self.conn_mut(peer).filter(|_| limit > 0) else {
            return;
        };
        let path = &mut conn.paths[at];
        let received = path.stats.packets_received;
        let Some((damaged, of)) = path.damage.on_bad(received, limit) else {
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

    /// The peer finds what we send on this path damaged.
    pub(crate) fn on_corrupt(&mut self, now: u64, peer: PeerId, code: u16) {
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        let at = conn.path_by_send_code(code);
        if let Some(at) = at.filter(|&at| conn.paths[at].state != PathState::Down) {
            let left = self.leave_corrupt(now, &mut conn, at);
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

    /// Leaves a path for its corruption, if there is a better one; whether it was left.
    fn leave_corrupt(&mut self, now: u64, conn: &mut alloc::boxed::Box<Conn>, at: usize) -> bool {
        if !conn.others_usable(at) {
            // Those that were left for the same reason are no worse than this one.
            conn.all_corrupt_until = now + ALL_CORRUPT_NS;
            for at in 0..conn.paths.len() {
                let path = &mut conn.paths[at];
                if path.quarantine.active {
                    path.quarantine.end(now);
                    path.rise(now);
                    self.tell_path(conn, at, PathReason::NoBetter, 0);
                }
            }
            return false;
        }
        if now < conn.all_corrupt_until {
            return false;
        }
        self.path_down(now, conn, at, PathReason::Corrupt);
        let path = &mut conn.paths[at];
        let left = path.state == PathState::Down;
        if left {
            path.quarantine.begin(now);
            path.stats.corrupt_downs += 1;
        }
        left
    }
}

/// The bytes that one sum covers, and its algorithm.
impl Node {
    /// Payload algorithm of packets on a path.
    #[inline]
    pub(crate) fn algorithm_on(&self, conn: &Conn, at: usize) -> u8 {
        let local = conn.paths[at].local as usize;
        let own = self.cfg.rail_algorithm.get(local).copied().flatten();
        // Only what the peer said it can check.
        own.filter(|&n| n < 32 && conn.session.algorithms >> n & 1 == 1)
            .unwrap_or(conn.session.algorithm)
    }

    /// Returns whether a message of this length goes under one sum, if it fits a packet.
    #[inline]
    pub(crate) fn undivided(&self, total: u64) -> bool {
        total <= self.cfg.fragment_max as u64
    }

    /// Adds whole fragments of a message to a packet as long as they fit: fragments may be smaller
    /// than what a packet holds. All full packets of a message are then alike.
    pub(crate) fn push_more(&mut self, key: Key, b: &mut Builder<'_, '_>) {
        loop {
            let Some(send) = self.ops.sends.get(key) else {
                return;
            };
            let (offset, left) = (send.next, send.upto - send.next);
            let len = left.min(self.cfg.fragment_max as u64);
            if len == 0 || !b.writer.fits(DATA_LEN, len as usize) {
                return;
            }
            let Some(pushed) = self.push_data(key, offset, len as u32, b) else {
                return;
            };
            self.ops.advance(key, offset + pushed as u64);
        }
    }
}
