//! Patience with peers that are often off their processor. Then a peer answers on no path, nothing
//! is lost, and what a repair timer sends again arrives twice.
//!
//! Two things are learnt. *Silences*, of all peers together: how long one said nothing on any
//! path though something waited for its answer, and then acknowledged what had waited all the
//! time. *Verdicts*, of each peer: whether a packet that was sent again had arrived (the idea of
//! Eifel, RFC 3522; packets are never numbered anew, so an ack names the copy that it is of).
//! While nearly all repairs prove needless, a path that is due for one first asks on another path
//! whether the peer is there. If it answers, what still lacks an ack is sent again; if nobody
//! does, the repair waits as long as peers were silent lately. Where packets are lost, verdicts
//! say so, and every repair comes at once.

use crate::base::config::Config;
use crate::state::absences::Absences;
use crate::state::conn::Conn;
use crate::state::path::{Path, REPAIR_START_MAX_NS};
use crate::state::sent_packets::SentState;
use crate::state::session::Liveness;

impl Absences {
    /// How long to wait for a peer that answers nobody; 0: not at all.
    #[inline]
    pub(crate) fn patience_ns(&self, life: &Liveness) -> u64 {
        let worst = self.worst_ns[0].max(self.worst_ns[1]);
        let balance = match life.verdicts.0 {
            0 => self.verdicts.0,
            own => own,
        };
        match balance > 0 {
            true => (worst + worst / 4).min(REPAIR_START_MAX_NS),
            false => 0,
        }
    }

    /// A packet of the peer came, before it is taken: what silence it ends.
    #[inline]
    pub(crate) fn note_life(&self, now: u64, life: &mut Liveness, cfg: &Config) {
        // What waited in our sockets says nothing of how things stand now.
        let behind = self.is_behind(now);
        let watched_until = if behind { self.gap_start_ns } else { now };
        if !behind {
            life.lively_ns = now;
        }
        let Some(since) = life.owed_since.filter(|_| life.heard_ns != 0) else {
            return;
        };
        if watched_until > since + cfg.repair_floor_ns {
            (life.woke_ns, life.silent_ns) = (now, now - since);
        }
    }

    /// An ack came on path `at` of the peer that named something new: what a silence that it ended
    /// tells.
    pub(crate) fn note_answer(&mut self, now: u64, conn: &Conn, at: usize, cfg: &Config) {
        let path = &conn.paths[at];
        let waited = now.saturating_sub(path.newest_acked_sent_ns);
        // The answer to something that was just sent is no sign that the peer was away before.
        if conn.life.woke_ns == now && waited > path.answer_ns(cfg) {
            self.learn(now, conn.life.silent_ns);
        }
    }

    /// Returns whether the packet of path `at` that was sent again had arrived, if that is known
    /// now.
    pub(crate) fn judge_repair(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        let Some(number) = path.repaired else {
            return;
        };
        let needless = match path.ring.get(number).map(|sent| sent.state) {
            Some(SentState::Waiting) => return,
            Some(SentState::Done) => true,
            Some(SentState::Lost) => false,
            None => return path.repaired = None,
        };
        path.repaired = None;
        path.stats.needless += needless as u64;
        conn.life.verdicts.add(needless);
        self.verdicts.add(needless);
    }
}

/// The action when a repair timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Another path is asked whether the peer is there.
    Ask,
    /// The oldest packet is sent again.
    Repair,
    /// Nothing is sent again: the path, which loses nothing, is asked whether it works.
    Stall,
    /// Frames that such a path holds are repeated on others.
    Hedge,
}

impl Conn {
    /// When the repair timer of a path expires, if it runs, and what is due then.
    #[inline]
    pub(crate) fn repair_at(
        &self,
        at: usize,
        cfg: &Config,
        absences: &Absences,
    ) -> Option<(u64, Expiry)> {
        let path = &self.paths[at];
        let due = path.repair_at(cfg, &self.life)?;
        if path.waits() {
            return Some(self.stall_at(at, due, cfg, absences));
        }
        match absences.patience_ns(&self.life) {
            0 => Some((due, Expiry::Repair)),
            patience_ns => {
                let from = absences.left_ns(path.repair_from);
                let due = from + (due - path.repair_from);
                Some(self.excused(path, (from, due), patience_ns, cfg))
            }
        }
    }

    fn excused(
        &self,
        path: &Path,
        (from, due): (u64, u64),
        patience_ns: u64,
        cfg: &Config,
    ) -> (u64, Expiry) {
        let answer_ns = path.answer_ns(cfg);
        let mut patience_ns = (patience_ns << path.backoff.min(6)).min(REPAIR_START_MAX_NS);
        if self.lacks_contact() {
            patience_ns = patience_ns.min(cfg.asks_every_ns());
        }
        let until = from + patience_ns;
        if self.life.lively_ns > from + answer_ns {
            // It is there, and acknowledges within a round trip what it found when it came back. (A
            // peer that speaks now and then comes back each time: it is waited for once.)
            let woke_ns = self.life.woke_ns.min(until);
            return (due.max(woke_ns + answer_ns), Expiry::Repair);
        }
        match until <= due || path.asked_from == path.repair_from {
            true => (until.max(due), Expiry::Repair),
            false => (due, Expiry::Ask),
        }
    }
}
