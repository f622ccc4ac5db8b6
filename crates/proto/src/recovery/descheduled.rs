//! Retransmission to peers that are often descheduled. A descheduled peer answers on no path,
//! nothing is lost, and retransmissions arrive twice.
//!
//! Two things are measured. *Silences*, over all peers: how long a peer was silent on all paths
//! while it owed an answer, and then acknowledged everything. *Verdicts*, per peer: whether a
//! retransmission was spurious (the idea of Eifel, RFC 3522; each transmission has its own packet
//! number, so an ack names the copy). While nearly all retransmissions are spurious, a path whose
//! timer expires first probes on another path whether the peer runs. If the peer answers, packets
//! still without an ack are retransmitted; if not, the retransmission waits for as long as recent
//! silences lasted. Where packets are lost the verdicts show it, and retransmissions are immediate.

use crate::base::config::Config;
use crate::state::conn::Conn;
use crate::state::descheduled::Descheduled;
use crate::state::path::{Path, PTO_INITIAL_MAX_NS};
use crate::state::sent_packets::SentState;
use crate::state::session::Liveness;

impl Descheduled {
    /// How long to wait for a peer that answers on no path; 0: do not wait.
    #[inline]
    pub(crate) fn descheduled_grace_ns(&self, life: &Liveness) -> u64 {
        let worst = self.silence_max_ns[0].max(self.silence_max_ns[1]);
        let balance = match life.verdicts.0 {
            0 => self.verdicts.0,
            own => own,
        };
        match balance > 0 {
            true => (worst + worst / 4).min(PTO_INITIAL_MAX_NS),
            false => 0,
        }
    }

    /// Returns whether the silence of a path is excused: this process was descheduled after a
    /// reference path answered at `answered_ns`, or the peer may be descheduled.
    pub(crate) fn excuses(
        &self,
        now: u64,
        answered_ns: u64,
        answer_ns: u64,
        life: &Liveness,
    ) -> bool {
        let fell_silent = || life.prompt_ns + answer_ns < now;
        let peer = self.descheduled_grace_ns(life) > 0 && fell_silent();
        self.gap_end_ns > answered_ns || peer
    }

    /// Before a packet is handled: notes the peer's silence that this packet ends.
    #[inline]
    pub(crate) fn note_life(&self, now: u64, life: &mut Liveness, cfg: &Config) {
        // A packet that waited in our sockets does not show that the peer runs now.
        let behind = self.is_catching_up(now);
        let watched_until = if behind { self.gap_start_ns } else { now };
        if !behind {
            life.prompt_ns = now;
        }
        let Some(since) = life.owed_since.filter(|_| life.heard_ns != 0) else {
            return;
        };
        if watched_until > since + cfg.pto_floor_ns {
            (life.silence_ended_ns, life.silent_ns) = (now, now - since);
        }
    }

    /// Handles an ack on path `at` with news: records the length of the silence that it ended.
    pub(crate) fn note_answer(&mut self, now: u64, conn: &Conn, at: usize, cfg: &Config) {
        let path = &conn.paths[at];
        let waited = now.saturating_sub(path.loss.newest_acked_sent_ns());
        // An answer to a recent packet does not show that the peer was descheduled before.
        if conn.life.silence_ended_ns == now && waited > path.answer_ns(cfg) {
            self.learn(now, conn.life.silent_ns);
        }
    }

    /// Once that is known, counts whether the last retransmission of path `at` was spurious.
    pub(crate) fn judge_pto(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        let Some(number) = path.pto.resent() else {
            return;
        };
        let resent_spurious = match path.ring.get(number).map(|sent| sent.state) {
            Some(SentState::Waiting) => return,
            Some(SentState::Done) => true,
            Some(SentState::Lost) => false,
            None => return path.pto.set_resent(None),
        };
        path.pto.set_resent(None);
        path.stats.resent_spurious += resent_spurious as u64;
        conn.life.verdicts.add(resent_spurious);
        self.verdicts.add(resent_spurious);
    }
}

/// Action when a retransmission timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Probe another path: does the peer run?
    Ask,
    /// Retransmit the oldest packet.
    Pto,
    /// Retransmit nothing, since the path is reliable (TCP, RC): probe the path itself.
    Stall,
    /// Repeat frames in flight on a reliable path on other paths.
    Hedge,
}

impl Conn {
    /// When the retransmission timer of a path expires, if it runs, and the action due then.
    #[inline]
    pub(crate) fn pto_at(
        &self,
        at: usize,
        cfg: &Config,
        descheduled: &Descheduled,
    ) -> Option<(u64, Expiry)> {
        let path = &self.paths[at];
        let due = path.pto_at(cfg, &self.life)?;
        if path.waits() {
            return Some(self.stall_at(at, due, cfg, descheduled));
        }
        match descheduled.descheduled_grace_ns(&self.life) {
            0 => Some((due, Expiry::Pto)),
            descheduled_grace_ns => {
                let from = descheduled.left_ns(path.pto.since_ns());
                let due = from + (due - path.pto.since_ns());
                Some(self.retransmit_or_probe(path, (from, due), descheduled_grace_ns, cfg))
            }
        }
    }

    fn retransmit_or_probe(
        &self,
        path: &Path,
        (from, due): (u64, u64),
        descheduled_grace_ns: u64,
        cfg: &Config,
    ) -> (u64, Expiry) {
        let answer_ns = path.answer_ns(cfg);
        let mut descheduled_grace_ns =
            (descheduled_grace_ns << path.pto.backoff().min(6)).min(PTO_INITIAL_MAX_NS);
        if self.is_unreached() {
            descheduled_grace_ns = descheduled_grace_ns.min(cfg.probe_interval_max_ns());
        }
        let until = from + descheduled_grace_ns;
        if self.life.prompt_ns > from + answer_ns {
            // The peer runs, and within a round trip acknowledges everything that it found when it
            // was rescheduled. (A peer that is heard from time to time is waited for once, not each
            // time.)
            let silence_ended_ns = self.life.silence_ended_ns.min(until);
            return (due.max(silence_ended_ns + answer_ns), Expiry::Pto);
        }
        match until <= due || path.pto.has_asked() {
            true => (until.max(due), Expiry::Pto),
            false => (due, Expiry::Ask),
        }
    }
}
