//! Repair timers that expire. A repair sends all of a packet the first time, and then no more than
//! one packet takes; of bytes that were written past the packet it asks whether they landed.

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

/// Bytes that fit one packet of any path, beside its header.
const BYTES_MAX: u32 = (DATAGRAM_BASE as u64 / GRANULE * GRANULE) as u32;

impl Node {
    /// Cuts the frames of a packet whose repair was not answered to what fits one packet of any
    /// path. The rest stays with the packet, which still waits, and is sent again when it is known
    /// to be lost.
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

    /// Cuts a fragment to the first of its bytes that are not acknowledged, and to `room`; how many
    /// are left. `None`: it need not be sent.
    pub(crate) fn cut(&self, frame: &mut FrameRef, room: u32) -> Option<u32> {
        let FrameRef::Data { xfer, offset, len } = frame else {
            return None;
        };
        let send = self.ops.sends.get(*xfer)?;
        if *len == 0 {
            return Some(0); // a message without bytes
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

/// Questions on a path that holds nothing else get lost so often before it is suspect.
const PINGS_MAX: u16 = 4;

/// Expired repair timers after which another way is tried where no other path carries.
pub(crate) const REHASH_AFTER: u16 = 3;
/// Those after which a connection that loses packets is made anew, also beside others: all may be
/// stuck at once, and a peer that is off its processor for a moment should not cost them.
const REMAKE_AFTER: u16 = 12;

impl Node {
    /// Packets that wait on a path whose rail is down have no timer there: their frames leave on
    /// another path, as soon as there is one. (They may have been sent in the moment in which the
    /// rail was tried again, or when this path was the last.)
    pub(crate) fn rescue(&mut self, conn: &mut Box<Conn>, at: usize) {
        let path = &conn.paths[at];
        if !path.rail_down || path.ring.waiting() == 0 || self.cfg.errs(Mutation::Strand) {
            return;
        }
        if conn.paths.iter().any(|p| !p.rail_down) {
            self.evacuate(conn, at);
        }
    }

    /// A repair timer expired, and repairs have proved needless lately: ask whether the peer is
    /// there.
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

    /// A repair timer expired: send the oldest waiting packet's frames again elsewhere, and from
    /// the second time on ask who is to blame.
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
            // It never worked; `probe` goes on asking now and then.
            self.evacuate(conn, at);
            return;
        }
        if path.sizes.is_probe(number) {
            return self.probe_lost(now, conn, at);
        }
        if !path.policy.lossy {
            // Its rail makes a connection, or has one that nobody answers on.
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
            // Sent again it would be many packets, and what is still to land would find no place
            // any more. An answer tells whether it landed.
            frames.retain(|frame| !frame.is_written());
            (path.want_ping, path.repaired) = (true, None);
        }
        let code = path.send_code();
        // A question on behalf of another path may get lost on one that works. Were that as suspect
        // as a message's loss, questions of witnesses would bring about duels without an end.
        let asks = others && path.ring.waiting_frames().all(|frame| frame.is_ping());
        path.want_ping |= asks;
        let suspicious = path.backoff >= if asks { PINGS_MAX } else { 2 };
        self.go_another_way(conn, at);
        let path = &mut conn.paths[at];
        if suspicious {
            self.one_packet(&mut frames);
            path.want_ping = true;
            // What carried our acks may be what gets lost: the repair says again what came.
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

    /// A repair timer expired, and for long nothing was heard on any path: sent again, what waits
    /// on each of them would only wait once more on another. So it is asked, as all are, and an
    /// answer on one brings the repairs of all at once.
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
        // A connection says itself whether it is made anew.
        if conn.paths[at].policy.unordered {
            self.tell_rerouted(conn, at);
        }
    }

    /// Returns whether a path was silent for so long that another way through the network is tried:
    /// on each path by itself, as all of them may have been cut for the same reason, and each needs
    /// another way of its own.
    fn wants_another_way(&self, conn: &Conn, at: usize) -> bool {
        let path = &conn.paths[at];
        match path.policy.lossy && !path.policy.unordered {
            true => path.backoff >= REMAKE_AFTER,
            false => path.backoff >= REHASH_AFTER && !self.carries_beside(conn, at),
        }
    }

    /// Returns whether another path carries, as far as is known: what is silent here is left to it.
    pub(crate) fn carries_beside(&self, conn: &Conn, at: usize) -> bool {
        if self.cfg.errs(Mutation::LeaveToSilent) {
            return has_rivals(conn, at);
        }
        let mut paths = conn.paths.iter().enumerate();
        paths.any(|(i, p)| i != at && p.usable() && !p.doubtful())
    }
}

impl Conn {
    /// Returns whether no path is known to carry, as nothing was heard on any for long: all have
    /// been tried by then.
    fn is_mute(&self, at: usize, cfg: &Config) -> bool {
        self.lacks_contact() && self.paths[at].is_slowed(cfg, &self.life)
    }
}
