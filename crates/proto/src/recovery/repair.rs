//! Expired retransmission timers. The first retransmission has all frames of a packet, later ones
//! at most one packet's worth; a write past the packets is not repeated but probed.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathState;
use crate::node::Node;
use crate::path::duel::{ask_rivals, has_rivals, WITNESSES};
use crate::state::conn::Conn;
use crate::state::resends::Why;
use crate::state::sent_packets::FrameRef;
use crate::state::sizes::DATAGRAM_BASE;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{DATA_LEN, GRANULE};

/// Payload bytes that fit one packet of any path.
const BYTES_MAX: u32 = (DATAGRAM_BASE as u64 / GRANULE * GRANULE) as u32;

impl Node {
    /// Cuts the frames of an unanswered retransmission to what fits one packet of any path. The
    /// rest stays with the packet in flight, and is retransmitted when the packet is declared lost.
    pub(crate) fn one_packet(&self, frames: &mut Vec<FrameRef>) {
        if self.cfg.errs(Mutation::RepairAll) {
            return;
        }
        let mut room = BYTES_MAX;
        frames.retain_mut(|frame| {
            if !matches!(frame, FrameRef::Data { .. }) {
                return true;
            }
            let Some(len) = self.cut(frame, room) else {
                return false;
            };
            room = room.saturating_sub(len + DATA_LEN as u32);
            true
        });
    }

    /// Cuts a fragment to its first run of unacknowledged bytes, and to `room`; returns their
    /// number. `None`: nothing is left to send.
    pub(crate) fn cut(&self, frame: &mut FrameRef, room: u32) -> Option<u32> {
        let FrameRef::Data { xfer, offset, len } = frame else {
            return None;
        };
        let send = self.ops.sends.get(*xfer)?;
        if *len == 0 {
            return Some(0); // a message without payload
        }
        while *len > 0 && send.acked.contains(*offset / GRANULE) {
            let step = GRANULE.min(*len as u64);
            *offset += step;
            *len -= step as u32;
        }
        if *len > room {
            *len = room - room % GRANULE as u32;
        }
        (*len > 0).then_some(*len)
    }
}

/// Lost probes on a path with nothing else in flight before the path is suspect.
const PINGS_MAX: u16 = 4;

/// Expired timers before another route is tried where no other path carries.
pub(crate) const REHASH_AFTER: u16 = 3;
/// Expired timers before a lossy connection is opened anew, even beside paths that carry: all may
/// be stuck at once. A briefly descheduled peer should not cost connections.
const REMAKE_AFTER: u16 = 12;

impl Node {
    /// Requeues packets in flight on a path whose rail is down, which has no timer, as soon as
    /// another rail is up. (They may have been sent just before the rail failed, or when this path
    /// was the last.)
    pub(crate) fn rescue(&mut self, conn: &mut Box<Conn>, at: usize) {
        let path = &conn.paths[at];
        if !path.rail_down || path.ring.waiting() == 0 || self.cfg.errs(Mutation::Strand) {
            return;
        }
        if conn.paths.iter().any(|p| !p.rail_down) {
            self.evacuate(conn, at);
        }
    }

    /// Handles an expired timer while retransmissions have been spurious lately: probes whether the
    /// peer runs.
    pub(crate) fn ask_first(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        self.absences.age(now);
        let path = &mut conn.paths[at];
        path.asked_from = match path.waits() {
            true => now,
            false => path.repair_from,
        };
        let alone = !has_rivals(conn, at);
        conn.paths[at].want_ping |= alone;
        if !alone {
            ask_rivals(conn, at, self.local.full, 1);
        }
        self.agenda.mark_ready(conn);
    }

    /// Handles an expired timer: retransmits the oldest packet's frames on another path; from the
    /// second time on, starts a path comparison.
    pub(crate) fn repair(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        self.absences.age(now);
        let others = has_rivals(conn, at);
        let path = &mut conn.paths[at];
        let Some((number, sent)) = path.ring.oldest_waiting() else {
            return;
        };
        let mut frames: Vec<FrameRef> = path.ring.frames_of(&sent).collect();
        path.repair_from = now;
        if path.state == PathState::Unproven && others {
            // The path never worked; `probe` goes on probing it.
            self.evacuate(conn, at);
            return;
        }
        if path.sizes.is_probe(number) {
            return self.probe_lost(now, conn, at);
        }
        if !path.policy.lossy {
            // The rail is still connecting, or its connection is silent.
            path.back_off();
            conn.doubt_contact(now);
            return self.agenda.mark_ready(conn);
        }
        path.back_off();
        path.stats.repairs += 1;
        if conn.is_mute(at, &self.cfg) {
            return self.ask_again(conn, at);
        }
        let path = &mut conn.paths[at];
        path.repaired = Some(number);
        if frames.iter().any(FrameRef::is_written) && !self.cfg.errs(Mutation::RepairAll) {
            // Retransmitted it would be many packets, and late fragments of the write would find no
            // place to land. A probe shows whether it landed.
            frames.retain(|frame| !frame.is_written());
            (path.want_ping, path.repaired) = (true, None);
        }
        let code = path.send_code();
        // A probe on behalf of another path may get lost on a working path. If that were as suspect
        // as a data loss, probes of reference paths would cause path comparisons without an end.
        let asks = others && path.ring.waiting_frames().all(|frame| frame.is_ping());
        path.want_ping |= asks;
        let suspicious = path.backoff >= if asks { PINGS_MAX } else { 2 };
        self.go_another_way(conn, at);
        let path = &mut conn.paths[at];
        if suspicious {
            self.one_packet(&mut frames);
            path.want_ping = true;
            // Our acks may be what gets lost: the retransmission repeats them.
            path.window.renew();
            if others && path.duel.is_none() {
                path.duel = Some(path.new_duel(now, self.grants.out));
            }
            self.suspect(conn, at);
        }
        for frame in frames {
            conn.requeue(frame, at, Why::Repair);
            conn.tx.resend.hedge(frame, code);
        }
        if suspicious {
            conn.doubt_contact(now);
            if others {
                ask_rivals(conn, at, self.local.full, WITNESSES);
            }
        }
        self.agenda.mark_ready(conn);
    }

    /// Handles an expired timer after a long silence on all paths: data retransmitted on another
    /// path would only wait there. So the path is probed, as all are; one answer makes all paths
    /// retransmit at once.
    fn ask_again(&mut self, conn: &mut Box<Conn>, at: usize) {
        let path = &mut conn.paths[at];
        (path.want_ping, path.repaired) = (true, None);
        path.window.renew();
        self.go_another_way(conn, at);
        self.agenda.mark_ready(conn);
    }

    fn go_another_way(&mut self, conn: &mut Conn, at: usize) {
        if conn.paths[at].backoff >= REHASH_AFTER {
            self.links.tell_silent(conn, at);
        }
        if !self.wants_another_way(conn, at) {
            return;
        }
        self.links.try_another_way(conn, at, &self.cfg);
        // A connection reports by itself that it is opened anew.
        if conn.paths[at].policy.unordered {
            self.tell_rerouted(conn, at);
        }
    }

    /// True if a path was silent for so long that another route is tried. Each path decides by
    /// itself: all may be cut for one reason, and each needs its own new route.
    fn wants_another_way(&self, conn: &Conn, at: usize) -> bool {
        let path = &conn.paths[at];
        match path.policy.lossy && !path.policy.unordered {
            true => path.backoff >= REMAKE_AFTER,
            false => path.backoff >= REHASH_AFTER && !self.carries_beside(conn, at),
        }
    }

    /// True if another path carries, as far as is known, so that this one may stay silent.
    pub(crate) fn carries_beside(&self, conn: &Conn, at: usize) -> bool {
        if self.cfg.errs(Mutation::LeaveToSilent) {
            return has_rivals(conn, at);
        }
        let mut paths = conn.paths.iter().enumerate();
        paths.any(|(i, p)| i != at && p.usable() && !p.doubtful())
    }
}

impl Conn {
    /// True if no path is known to carry and all were silent for long: all have been tried by then.
    fn is_mute(&self, at: usize, cfg: &Config) -> bool {
        self.lacks_contact() && self.paths[at].is_slowed(cfg, &self.life)
    }
}
