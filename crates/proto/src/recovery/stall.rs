//! Stalled reliable paths (TCP, RC): no ack arrives on a path that loses nothing. Packets in flight
//! then wait in the rail, which retransmits by itself, or for a descheduled peer; or the network no
//! longer carries packets, which the rail notices late.
//!
//! So another path is soon probed, with a request for all acks. If the peer answers and packets in
//! flight are still not acknowledged, their frames are also sent on other paths: of one packet,
//! then two, then four, after each further answer; new data takes other paths as well. Bytes
//! written past packets are not repeated: late, they would find no place to land. Only a path
//! comparison that outlasts the rail's own retransmissions takes the path down.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::outgoing::sends::Outgoing;
use crate::path::actions::Recovery;
use crate::path::comparison::{ask_references, has_references, REFERENCE_PATHS};
use crate::recovery::descheduled::Expiry;
use crate::recovery::pto::REHASH_AFTER;
use crate::state::conn::Conn;
use crate::state::descheduled::Descheduled;
use crate::state::path::Path;
use crate::state::resends::Why;
use crate::state::sent_packets::{FrameRef, SentState};
use alloc::vec::Vec;

/// Least time without an ack before another path is probed. A peer that polls answers within tens
/// of microseconds; a peer descheduled for a time slice costs one probe.
const ASK_NS: u64 = 1_000_000;
impl Path {
    /// True if, in this interval, another path was probed on behalf of this path, or frames in
    /// flight were repeated there.
    pub(crate) fn asked_elsewhere(&self) -> bool {
        self.waits() && self.pto.asked_elsewhere_ns().is_some()
    }
}

impl Conn {
    /// When an action is due because no ack arrives on reliable path `at`, and which action. At
    /// `stall` the path itself is probed.
    pub(crate) fn stall_at(
        &self,
        at: usize,
        stall: u64,
        cfg: &Config,
        descheduled: &Descheduled,
    ) -> (u64, Expiry) {
        let path = &self.paths[at];
        if path.pto.is_hedged() || !has_references(self, at) {
            return (stall, Expiry::Stall);
        }
        let asked = path.pto.asked_elsewhere_ns().filter(|_| path.waits());
        let (due, what) = match asked {
            None => {
                let from = descheduled.left_ns(path.pto.since_ns());
                // (A deep queue has long round trips while acks keep arriving.)
                let late_ns = path.answer_ns(cfg).max(ASK_NS).max(path.queued_ns());
                (from + late_ns, Expiry::Ask)
            }
            Some(asked_ns) if self.life.prompt_ns > asked_ns => {
                // The peer reads this path's rail right after the rail on which it answered.
                let awake = asked_ns.max(self.life.silence_ended_ns);
                let due = awake + path.answer_ns(cfg).max(path.queued_ns());
                (due, Expiry::Hedge)
            }
            Some(_) => (stall, Expiry::Stall),
        };
        match due < stall {
            true => (due, what),
            false => (stall, Expiry::Stall),
        }
    }
}

impl Recovery<'_> {
    /// Repeats more of the frames in flight on other paths, because the peer answers there and
    /// acknowledges nothing on this path.
    pub(crate) fn hedge(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        path.pto.ask_elsewhere(now, true);
        let first = path.pto.is_first_hedge();
        // Frames repeated before leave first.
        if conn.tx.resend.is_empty() {
            let frames = self.outgoing.unhedged(&conn.paths[at]);
            let path = &mut conn.paths[at];
            path.pto.on_hedge(frames.is_empty());
            let code = path.send_code();
            for (i, frame) in frames.into_iter().enumerate() {
                conn.requeue(frame, at, Why::Pto);
                // The first frame ignores congestion windows; the others must not fill a path that
                // works.
                if i == 0 {
                    conn.tx.resend.hedge(frame, code);
                }
            }
        }
        let path = &mut conn.paths[at];
        path.stats.ptos += first as u64;
        if !path.health.is_compared() {
            let comparison = path.new_comparison(now, self.granted);
            path.health.set_comparison(Some(comparison));
        }
        path.probing.request_if(first);
        self.actions.events(conn.suspect(at));
        conn.doubt_reachability(now);
        ask_references(conn, at, self.local.full, REFERENCE_PATHS);
        self.actions.mark_ready();
    }

    /// Probes a reliable path that has had no ack for long. The probe follows all packets in flight
    /// in order, so its answer shows which of them the peer did not take. If no answer comes, other
    /// paths show whether the path or the peer is silent.
    pub(crate) fn stalled(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let others = has_references(conn, at);
        let heard_ns = conn.life.heard_ns;
        let path = &mut conn.paths[at];
        // A peer that is silent on all paths is descheduled or dead: no path is at fault.
        let silent = heard_ns < path.pto.since_ns();
        path.pto.on_stall(now);
        path.probing.request();
        path.acks.renew();
        let rounds = path.pto.backoff() / REHASH_AFTER;
        // At growing intervals: a connection's own retransmissions take time, and the peer may be
        // silent.
        let again = path.pto.backoff() == rounds * REHASH_AFTER && rounds.is_power_of_two();
        // A descheduled peer costs no connection: its kernel acknowledges data, so the rail does
        // not reconnect.
        let trusts = self.cfg.errs(Mutation::LeaveToSilent);
        let nowhere = !conn.carries_beside(at, self.cfg) || silent && !trusts;
        if again && nowhere {
            self.reroute(conn, at);
        }
        if conn.paths[at].pto.backoff() >= 2 {
            self.report_silent(conn, at);
        }
        let path = &mut conn.paths[at];
        if path.pto.backoff() >= 2 {
            if others && !path.health.is_compared() {
                let comparison = path.new_comparison(now, self.granted);
                path.health.set_comparison(Some(comparison));
            }
            if !(silent && others) {
                self.actions.events(conn.suspect(at));
            }
            conn.doubt_reachability(now);
            if others {
                ask_references(conn, at, self.local.full, REFERENCE_PATHS);
            }
        }
        self.actions.mark_ready();
    }
}

impl Outgoing {
    /// Frames of the oldest packets in flight that no other path has delivered, of twice as many
    /// packets as last time.
    fn unhedged(&self, path: &Path) -> Vec<FrameRef> {
        let (mut frames, mut packets, count) = (Vec::new(), 0, path.pto.hedge_packets());
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
                    _ => path.pto.hedges_control(),
                };
                if again {
                    frames.push(frame);
                }
            }
            packets += (frames.len() > before) as usize;
        }
        frames
    }
}
