//! Paths on which packets arrive damaged, and what of a message one sum covers.
//!
//! A damaged packet costs a repair, and many of them say that a card, a cable or a port is failing.
//! Only the receiver can tell damage from loss, and only the sender can send elsewhere. So the
//! receiver counts ([`Damage`]); above the limit it says CORRUPT, reliably, over any path; the
//! sender leaves the path like one that fell, and puts it on [`Trial`]: full packets whose every
//! byte is under the head's CRC have to come through many times in a row. How many doubles with
//! each relapse, so that a path which damages few packets is not taken back again and again.
//!
//! The last usable path is never left. If every path is as bad, all are used.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{DropReason, Event, PeerId};
use crate::node::Node;
use crate::path::state::{Path, PathState};
use crate::peer::conn::Conn;
use crate::recovery::sent_packets::FrameRef;
use crate::tx::packet_builder::Builder;
use marline_wire::{Frame, HeadWriter, Header, DATA_LEN, FLAG_UNSUMMED};

/// Damaged packets within the window before a path is judged: one that damages a tenth of the
/// limit shows so many by chance about once in 10^8 packets.
const DAMAGED_MIN: u32 = 8;
/// Packets after which older ones count half.
const WINDOW_PACKETS: u64 = 4_096;
/// Probes in a row that a path has to bring through, at first and at most. A path that damages
/// one packet in a hundred passes 256 once in 13 times.
const CLEAN_MIN: u32 = 16;
const CLEAN_MAX: u32 = 256;
/// Shortest time between two probes, and the longest after one that was lost.
const TRIAL_NS: u64 = 1_000_000;
const TRIAL_CAP_NS: u64 = 100_000_000;
/// A peer that does not poll answers within three ticks of its progress thread (promise 3).
const ANSWER_NS: u64 = 30_000_000;
/// Bytes of a trial's probe: a jumbo frame.
const TRIAL_BYTES: usize = 8_960;
/// Without complaint for so long, a path's past is forgotten.
const FORGET_NS: u64 = 10_000_000_000;
/// When all paths corrupt, complaints are not heard for so long.
const ALL_CORRUPT_NS: u64 = 1_000_000_000;

/// Damaged packets among those that arrive on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    /// Good packets of the path when the window began.
    from: u64,
    bad: u32,
}

impl Damage {
    /// A damaged packet, after `received` good ones in all; damaged ones and all of the window if
    /// there are more than `limit_ppm`.
    fn on_bad(&mut self, received: u64, limit_ppm: u32) -> Option<(u32, u64)> {
        self.bad += 1;
        let of = received.saturating_sub(self.from) + self.bad as u64;
        if self.bad >= DAMAGED_MIN && self.bad as u64 * 1_000_000 > of * limit_ppm as u64 {
            let found = (self.bad, of);
            *self = Damage {
                from: received,
                bad: 0,
            };
            return Some(found);
        }
        if of > WINDOW_PACKETS {
            self.bad /= 2;
            self.from = received.saturating_sub(of / 2);
        }
        None
    }
}

/// A path that was left for corruption, and how it comes back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial {
    /// It is on trial.
    pub active: bool,
    needed: u32,
    clean: u32,
    since_ns: u64,
    /// When the last probe was asked for.
    asked_ns: u64,
}

impl Trial {
    fn begin(&mut self, now: u64) {
        let old = now.saturating_sub(self.since_ns) > FORGET_NS;
        self.needed = match self.needed {
            0 => CLEAN_MIN,
            _ if old => CLEAN_MIN,
            n => (2 * n).min(CLEAN_MAX),
        };
        self.active = true;
        self.clean = 0;
        self.since_ns = now;
    }

    /// A probe came through; whether that was the last of those needed.
    fn passed(&mut self) -> bool {
        self.clean += 1;
        self.clean >= self.needed
    }

    fn end(&mut self, now: u64) {
        self.active = false;
        self.since_ns = now;
    }

    /// Fills a probe of a path on trial with nothing: all of it is under the head's CRC.
    pub(crate) fn fill(&self, writer: &mut HeadWriter<'_>) {
        if self.active {
            let room = writer.room().min(TRIAL_BYTES).saturating_sub(8);
            let head = (room / 8 * 8) as u16;
            writer.push(&Frame::Pad { len: 0, head });
        }
    }
}

impl Path {
    /// Asks the next probe of a path on trial, unless the last one may still be answered. `true`:
    /// it was not; so from the start, later, and by another source port.
    pub(crate) fn next_trial(&mut self, now: u64) -> bool {
        let shortest = TRIAL_NS.max(4 * self.srtt_ns);
        let waits = self.ring.waiting() > 0;
        if waits && now < self.trial.asked_ns + ANSWER_NS {
            self.probe_at = now + shortest;
            return false;
        }
        if waits {
            self.trial.clean = 0;
            self.flow = (self.flow + 1) % 4;
            // (Not `clamp`: on a very slow path the shortest is longer than the cap.)
            self.probe_every = (2 * self.probe_every).min(TRIAL_CAP_NS).max(shortest);
        } else {
            self.probe_every = shortest;
        }
        self.probe_at = now + self.probe_every;
        self.want_ping = !self.rail_down;
        self.trial.asked_ns = now;
        waits
    }
}

impl Conn {
    /// Something came through on a path that is not in use; whether it may be used again.
    pub(crate) fn acquitted(&mut self, at: usize) -> bool {
        let alone = !self.others_answer(at);
        let path = &mut self.paths[at];
        let free = !path.trial.active || path.trial.passed() || alone;
        if free && path.trial.active {
            path.trial.end(path.newest_acked_sent_ns);
        }
        free
    }

    /// Whether any other path is beyond doubt. (One that damages some carries more than one that is
    /// silent.)
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
        let (id, token) = (header.dst_id == self.id, header.dst_token == self.token);
        let peer = self.by_id.get(&header.src_id).copied().map(PeerId);
        if let Some(peer) = peer.filter(|_| id && token) {
            self.note_bad_head(peer, &header);
        }
        id || token || peer.is_some()
    }

    fn note_bad_head(&mut self, peer: PeerId, header: &Header) {
        let code = header.path.rotate_left(4);
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let known = conn.epoch == Some(header.src_epoch) && !conn.dead && !conn.closed;
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
            remote_rail: path.remote,
            damaged,
            of,
            told: false,
            left: false,
        };
        let frame = FrameRef::Corrupt(path.recv_code());
        if !conn.control.contains(&frame) {
            conn.control.push_back(frame);
        }
        self.wake(peer);
        self.events.push_back(event);
    }

    /// The peer finds what we send on this path damaged.
    pub(crate) fn on_corrupt(&mut self, now: u64, peer: PeerId, code: u8) {
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
                remote_rail: path.remote,
                damaged: 0,
                of: 0,
                told: true,
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
            for path in conn.paths.iter_mut().filter(|p| p.trial.active) {
                path.trial.end(now);
                path.rise(now);
                let event = path.changed(conn.peer);
                self.events.push_back(event);
            }
            return false;
        }
        if now < conn.all_corrupt_until {
            return false;
        }
        self.path_down(now, conn, at);
        let path = &mut conn.paths[at];
        let left = path.state == PathState::Down;
        if left {
            path.trial.begin(now);
            path.stats.corrupt_downs += 1;
        }
        left
    }
}

/// Algorithm number of a fragment by its frame's flags, in a packet that names `packet`.
#[inline]
pub(crate) fn sums_of(packet: u8, flags: u8) -> u8 {
    if flags & FLAG_UNSUMMED == 0 {
        packet
    } else {
        0
    }
}

/// What one sum covers (S_max of paper 3), and by which algorithm.
impl Node {
    /// Payload algorithm of packets on a path.
    #[inline]
    pub(crate) fn algorithm_on(&self, conn: &Conn, at: usize) -> u8 {
        let local = conn.paths[at].local as usize;
        let own = self.cfg.rail_algorithm.get(local).copied().flatten();
        // Only what the peer said it can check.
        own.filter(|&n| n < 32 && conn.algorithms >> n & 1 == 1)
            .unwrap_or(conn.algorithm)
    }

    /// Whether a message of this length goes under one sum, if it fits a packet.
    #[inline]
    pub(crate) fn undivided(&self, total: u64) -> bool {
        total <= self.cfg.fragment_max as u64
    }

    /// Adds whole fragments of a message to a packet as long as they fit: fragments may be smaller
    /// than what a packet holds. All full packets of a message are then alike.
    pub(crate) fn push_more(&mut self, key: Key, b: &mut Builder<'_, '_>) {
        loop {
            let Some(send) = self.sends.get(key) else {
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
            self.advance(key, offset + pushed as u64);
        }
    }
}
