//! Expired retransmission timers. The first retransmission has all frames of a packet, later ones
//! at most one packet's worth. A write past the packets is not repeated but probed.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathState;
use crate::outgoing::sends::Outgoing;
use crate::path::actions::Recovery;
use crate::path::comparison::{ask_references, has_references, REFERENCE_PATHS};
use crate::state::conn::Conn;
use crate::state::mtu_search::DATAGRAM_BASE;
use crate::state::resends::Why;
use crate::state::sent_packets::FrameRef;
use alloc::vec::Vec;
use marline_wire::{BLOCK_BYTES, DATA_LEN};

/// Payload bytes that fit one packet of any path.
const BYTES_MAX: u32 = (DATAGRAM_BASE as u64 / BLOCK_BYTES * BLOCK_BYTES) as u32;

impl Outgoing {
    /// Cuts the frames of a retransmission, after an unanswered one, to what fits one packet of any
    /// path. The rest stays with the packet in flight, and is retransmitted when that packet is
    /// declared lost.
    pub(crate) fn one_packet(&self, frames: &mut Vec<FrameRef>, cfg: &Config) {
        if cfg.errs(Mutation::ResendAll) {
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

    /// Cuts a fragment to its first run of unacknowledged bytes, and to `room`. Returns the number
    /// of bytes; `None`: nothing is left to send.
    pub(crate) fn cut(&self, frame: &mut FrameRef, room: u32) -> Option<u32> {
        let FrameRef::Data { xfer, offset, len } = frame else {
            return None;
        };
        let send = self.get(*xfer)?;
        if *len == 0 {
            return Some(0); // a message without payload
        }
        while *len > 0 && send.acked.contains(*offset / BLOCK_BYTES) {
            let step = BLOCK_BYTES.min(*len as u64);
            *offset += step;
            *len -= step as u32;
        }
        if *len > room {
            *len = room - room % BLOCK_BYTES as u32;
        }
        (*len > 0).then_some(*len)
    }
}

/// Lost probes on a path with nothing else in flight that make the path suspect.
const PINGS_MAX: u16 = 4;

/// Expired timers after which another route is tried, if no other path carries packets.
pub(crate) const REHASH_AFTER: u16 = 3;
/// Expired timers after which a lossy connection is opened anew, even beside paths that carry
/// packets: all may be stuck at once. High enough that a briefly descheduled peer costs no
/// connections.
const REMAKE_AFTER: u16 = 12;

impl Recovery<'_> {
    /// Requeues packets in flight on a path whose rail is down, which has no timer, as soon as
    /// another rail is up. (They may have been sent just before the rail failed, or while this path
    /// was the last.)
    pub(crate) fn requeue_stranded(&mut self, conn: &mut Conn, at: usize) {
        let path = &conn.paths[at];
        if !path.rail_down() || path.ring.waiting() == 0 || self.cfg.errs(Mutation::Strand) {
            return;
        }
        if conn.paths.iter().any(|p| !p.rail_down()) {
            self.requeue_in_flight(conn, at);
        }
    }

    /// Handles an expired timer while retransmissions have been spurious lately: probes whether the
    /// peer runs.
    pub(crate) fn ask_first(&mut self, now: u64, conn: &mut Conn, at: usize) {
        self.descheduled.age(now);
        let path = &mut conn.paths[at];
        let reliable = path.waits();
        path.pto.ask_elsewhere(now, reliable);
        let alone = !has_references(conn, at);
        conn.paths[at].probing.request_if(alone);
        if !alone {
            ask_references(conn, at, self.local.full, 1);
        }
        self.actions.mark_ready();
    }

    /// Handles an expired timer: retransmits the oldest packet's frames on another path; from the
    /// second expiry on, also starts a path comparison.
    pub(crate) fn on_pto(&mut self, now: u64, conn: &mut Conn, at: usize) {
        self.descheduled.age(now);
        let others = has_references(conn, at);
        let path = &mut conn.paths[at];
        let Some((number, sent)) = path.ring.oldest_waiting() else {
            return;
        };
        let mut frames: Vec<FrameRef> = path.ring.frames_of(&sent).collect();
        path.pto.restart(now);
        if path.state() == PathState::Unproven && others {
            // The path never worked: packets leave it, and `probe` goes on probing it.
            self.requeue_in_flight(conn, at);
            return;
        }
        if path.mtu.is_probe(number) {
            return self.probe_lost(now, conn, at);
        }
        if !path.policy.lossy {
            // The rail is still connecting, or its connection is silent.
            path.pto.back_off();
            conn.doubt_reachability(now);
            return self.actions.mark_ready();
        }
        path.pto.back_off();
        path.stats.ptos += 1;
        if conn.is_silent_everywhere(at, self.cfg) {
            return self.ask_again(conn, at);
        }
        let path = &mut conn.paths[at];
        path.pto.set_resent(Some(number));
        if frames.iter().any(FrameRef::is_written) && !self.cfg.errs(Mutation::ResendAll) {
            // A write is not retransmitted: it would need many packets, and late fragments of the
            // write could no longer land. A probe shows whether the write landed.
            frames.retain(|frame| !frame.is_written());
            path.probing.request();
            path.pto.set_resent(None);
        }
        let code = path.send_code();
        // A probe on behalf of another path may get lost on a working path. If such a loss were as
        // suspicious as a loss of data, probes of reference paths would cause path comparisons
        // without end.
        let asks = others && path.ring.waiting_frames().all(|frame| frame.is_ping());
        path.probing.request_if(asks);
        let suspicious = path.pto.backoff() >= if asks { PINGS_MAX } else { 2 };
        self.reroute_if_due(conn, at);
        let path = &mut conn.paths[at];
        if suspicious {
            self.outgoing.one_packet(&mut frames, self.cfg);
            path.probing.request();
            // Perhaps our acks are lost: the retransmission repeats them.
            path.acks.renew();
            if others && !path.health.is_compared() {
                let comparison = path.new_comparison(now, self.granted);
                path.health.set_comparison(Some(comparison));
            }
            self.actions.events(conn.suspect(at));
        }
        for frame in frames {
            conn.requeue(frame, at, Why::Pto);
            conn.tx.resend.hedge(frame, code);
        }
        if suspicious {
            conn.doubt_reachability(now);
            if others {
                ask_references(conn, at, self.local.full, REFERENCE_PATHS);
            }
        }
        self.actions.mark_ready();
    }

    /// Handles an expired timer after a long silence on all paths. Data retransmitted on another
    /// path would only wait there. So the path is probed, as all paths are; one answer makes all of
    /// them retransmit at once.
    fn ask_again(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        path.probing.request();
        path.pto.set_resent(None);
        path.acks.renew();
        self.reroute_if_due(conn, at);
        self.actions.mark_ready();
    }

    fn reroute_if_due(&mut self, conn: &mut Conn, at: usize) {
        if conn.paths[at].pto.backoff() >= REHASH_AFTER {
            self.report_silent(conn, at);
        }
        if !conn.wants_reroute(at, self.cfg) {
            return;
        }
        self.reroute(conn, at);
        // Rails with connections report the new connection themselves.
        if conn.paths[at].policy.unordered {
            self.actions.event(conn.path_rerouted(at));
        }
    }
}

impl Conn {
    /// True if a path was silent for so long that another route is tried. Each path decides for
    /// itself: one cause may cut off all paths, and each then needs a new route.
    fn wants_reroute(&self, at: usize, cfg: &Config) -> bool {
        let path = &self.paths[at];
        match path.policy.lossy && !path.policy.unordered {
            true => path.pto.backoff() >= REMAKE_AFTER,
            false => path.pto.backoff() >= REHASH_AFTER && !self.carries_beside(at, cfg),
        }
    }

    /// True if another path carries packets, as far as is known, so that this path may stay silent.
    pub(crate) fn carries_beside(&self, at: usize, cfg: &Config) -> bool {
        if cfg.errs(Mutation::LeaveToSilent) {
            return has_references(self, at);
        }
        let mut paths = self.paths.iter().enumerate();
        paths.any(|(i, p)| i != at && p.usable() && !p.doubtful())
    }

    /// True if no path is known to carry packets and all were silent for long, so that each has
    /// been tried.
    fn is_silent_everywhere(&self, at: usize, cfg: &Config) -> bool {
        self.is_unreached() && self.paths[at].is_slowed(cfg, &self.life)
    }
}
