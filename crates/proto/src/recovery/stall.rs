//! Paths that lose nothing, as connections, on which nothing is acknowledged. What was sent waits
//! in the rail, which repeats what the network loses, or for a peer off its processor; or the
//! network carries nothing any more, which the rail learns late.
//!
//! So another path is asked, soon, whether the peer is there. The question asks for all acks, too.
//! If the peer answers, and what waits is still not acknowledged, it is repeated on other paths:
//! one packet, then two, then four, each time the peer has answered again; and what is new leaves
//! there as well. Bytes that were written past packets are not: they would find no place when they
//! come late. Only a duel that lasts longer than the rail's own repairs gives the path up.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::node::Node;
use crate::path::duel::{ask_rivals, has_rivals, WITNESSES};
use crate::recovery::absence::Expiry;
use crate::recovery::repair::REHASH_AFTER;
use crate::state::absences::Absences;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::resends::Why;
use crate::state::sent_packets::{FrameRef, SentState};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Nothing was acknowledged for so long at least before another path is asked. A peer that polls
/// answers within tens of microseconds; one that is off its processor for a slice costs a question.
const ASK_NS: u64 = 1_000_000;
/// Packets that are repeated at once, at most: two to this power.
const HEDGES_MAX: u8 = 6;
/// All that waits was repeated: the next look at that is when the path itself is asked again.
const HEDGED: u8 = u8::MAX;
/// Requests and grants are repeated so often: that they arrived nobody notes.
const CONTROL_MAX: u8 = 2;

impl Path {
    /// Another path was asked in this interval on behalf of this one, or what it holds was repeated
    /// there.
    pub(crate) fn asked_elsewhere(&self) -> bool {
        self.waits() && self.asked_from != u64::MAX && self.asked_from > self.repair_from
    }
}

impl Conn {
    /// When something is due because nothing is acknowledged on path `at`, which loses nothing;
    /// `stall` is when the path itself is asked.
    pub(crate) fn stall_at(
        &self,
        at: usize,
        stall: u64,
        cfg: &Config,
        absences: &Absences,
    ) -> (u64, Expiry) {
        let path = &self.paths[at];
        if path.hedges == HEDGED || !has_rivals(self, at) {
            return (stall, Expiry::Stall);
        }
        let (due, what) = if !path.asked_elsewhere() {
            let from = absences.left_ns(path.repair_from);
            // (Round trips of a deep queue are long, and acks come all the time.)
            let late_ns = path.answer_ns(cfg).max(ASK_NS).max(path.queued_ns());
            (from + late_ns, Expiry::Ask)
        } else if self.life.lively_ns > path.asked_from {
            // It reads this path's rail right after the one that it answered on.
            let awake = path.asked_from.max(self.life.woke_ns);
            (
                awake + path.answer_ns(cfg).max(path.queued_ns()),
                Expiry::Hedge,
            )
        } else {
            (stall, Expiry::Stall)
        };
        match due < stall {
            true => (due, what),
            false => (stall, Expiry::Stall),
        }
    }
}

impl Node {
    /// The peer answers on other paths, and nothing is acknowledged on this one: more of what waits
    /// there leaves on others as well.
    pub(crate) fn hedge(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let path = &mut conn.paths[at];
        path.asked_from = now;
        let first = path.hedges == 0;
        // What was repeated before is to leave first.
        if conn.tx.resend.is_empty() {
            let frames = self.unhedged(&conn.paths[at]);
            let path = &mut conn.paths[at];
            path.hedges = match frames.is_empty() {
                true => HEDGED,
                false => (path.hedges + 1).min(HEDGES_MAX),
            };
            let code = path.send_code();
            for (i, frame) in frames.into_iter().enumerate() {
                conn.requeue(frame, at, Why::Repair);
                // One leaves whatever the window says; the others do not fill a path that works.
                if i == 0 {
                    conn.tx.resend.hedge(frame, code);
                }
            }
        }
        let path = &mut conn.paths[at];
        path.stats.repairs += first as u64;
        if path.duel.is_none() {
            path.duel = Some(path.new_duel(now, self.grants.out));
        }
        path.want_ping |= first;
        self.suspect(conn, at);
        conn.doubt_contact(now);
        ask_rivals(conn, at, self.local.full, WITNESSES);
        self.agenda.mark_ready(conn);
    }

    /// Frames of the oldest packets that wait on the path, which no other path has delivered: of
    /// twice as many packets as the last time.
    fn unhedged(&self, path: &Path) -> Vec<FrameRef> {
        let (mut frames, mut packets, count) = (Vec::new(), 0, 1 << path.hedges);
        for number in path.ring.first()..path.ring.next_number() {
            let Some(sent) = path.ring.get(number).filter(|_| packets < count) else {
                break;
            };
            if sent.state != SentState::Waiting {
                continue;
            }
            let before = frames.len();
            for mut frame in path.ring.frames_of(&sent) {
                let again = match frame {
                    FrameRef::Written { .. } | FrameRef::Ping { .. } => false,
                    FrameRef::Data { .. } => self.cut(&mut frame, u32::MAX).is_some(),
                    _ => path.hedges < CONTROL_MAX,
                };
                if again {
                    frames.push(frame);
                }
            }
            packets += (frames.len() > before) as usize;
        }
        frames
    }

    /// Nothing was acknowledged for long on a path that loses nothing. A probe behind all that
    /// waits there shows what the peer did not take: in order, its answer passes over that. If the
    /// path answers nothing, others show whether the path is to blame or the peer.
    pub(crate) fn stalled(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let others = has_rivals(conn, at);
        let heard_ns = conn.life.heard_ns;
        let path = &mut conn.paths[at];
        // A peer that said nothing on any path is off its processor, or dead: no path is to blame.
        let silent = heard_ns < path.repair_from;
        path.repair_from = now;
        path.hedges = 0;
        path.back_off();
        path.want_ping = true;
        path.window.renew();
        let rounds = path.backoff / REHASH_AFTER;
        // Ever later: what a connection repeats takes its time, and the peer may be silent.
        let again = path.backoff == rounds * REHASH_AFTER && rounds.is_power_of_two();
        // A peer that is off its processor costs no connection: its kernel acknowledges what was
        // sent, and then the rail makes no other.
        let trusts = self.cfg.errs(Mutation::LeaveToSilent);
        let nowhere = !self.carries_beside(conn, at) || silent && !trusts;
        if again && nowhere {
            self.links.try_another_way(conn, at, &self.cfg);
        }
        if conn.paths[at].backoff >= 2 {
            self.links.tell_silent(conn, at);
        }
        let path = &mut conn.paths[at];
        if path.backoff >= 2 {
            if others && path.duel.is_none() {
                path.duel = Some(path.new_duel(now, self.grants.out));
            }
            if !(silent && others) {
                self.suspect(conn, at);
            }
            conn.doubt_contact(now);
            if others {
                ask_rivals(conn, at, self.local.full, WITNESSES);
            }
        }
        self.agenda.mark_ready(conn);
    }
}
