//! Contact with a peer is lost while no path is known to carry what is sent on it. Perhaps each of
//! them carries one direction only, so that no path by itself brings an answer.
//!
//! Then what is known of paths counts for nothing. All of them are asked, each millisecond at
//! first, then ever more rarely, but often enough that chance alone cannot lose all questions
//! before the peer counts as dead. The questions say so (`Header::FLAG_EVERYWHERE`), and whoever is
//! asked like that answers on all of its paths, whatever it thinks of them, since it may be wrong
//! as well. One answer is enough to know a path that carries.

use crate::base::config::{Config, MORE_TIME};
use crate::base::mutation::Mutation;
use crate::base::types::{PathState, PeerId};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;

/// First pause between two questions on a path.
const ASK_EVERY_NS: u64 = 1_000_000;
/// Pause between two answers on all paths, for each of them: one question on each would else bring
/// about as many packets as their number squared.
const ANSWER_EVERY_NS: u64 = 20_000;

/// A peer is silent when each path was asked so often since it was heard. Of eight questions and
/// answers that each get lost one time of three, all are once in 9,000 times.
const ASKED_MIN: u8 = 8;
/// Where that is not so yet it is waited for longer, [`MORE_TIME`] times at most; and where our
/// rails come and go so often that none could ask, this many times.
const FLAPS_TIME: u8 = 2 * MORE_TIME;
/// Served this late, we were away ourselves (stopped, swapped): silence then proves nothing.
const AWAY_NS: u64 = 500_000_000;

impl Path {
    /// It is asked, for the peer that was last heard then.
    #[inline]
    pub(crate) fn note_asked(&mut self, heard_ns: u64) {
        let asked = if self.unheard_since_ns == heard_ns {
            self.unheard
        } else {
            0
        };
        (self.unheard_since_ns, self.unheard) = (heard_ns, asked.saturating_add(1));
    }
}

impl Conn {
    /// True if the peer did not answer though it was asked on each path that could carry a
    /// question, often enough that they cannot all have been lost. (`full`: rails without room.)
    fn was_asked(&self, full: u32) -> bool {
        let mut open = self
            .paths
            .iter()
            .filter(|p| !p.rail_down && p.has_room(full));
        open.all(|p| p.unheard_since_ns == self.life.heard_ns && p.unheard >= ASKED_MIN)
    }
    /// True if a connection that loses nothing stands, or stood within the timeout. It breaks where
    /// the network carries one direction only: what was sent waits on it, or its acks do, behind
    /// long messages.
    fn is_held_up(&self, now: u64, timeout_ns: u64) -> bool {
        let mut held = self.paths.iter().filter(|p| p.waits());
        held.any(|p| p.link.was_up(now, timeout_ns))
    }

    /// True if no path is known to carry.
    #[inline]
    pub fn lacks_contact(&self) -> bool {
        self.contact.is_lost() && !self.paths.iter().any(Path::healthy)
    }

    /// A path fell under suspicion, or failed. If it was the last that was known to carry, all are
    /// asked.
    pub(crate) fn doubt_contact(&mut self, now: u64) {
        if self.lacks_contact() {
            return;
        }
        if self.paths.iter().any(Path::healthy) {
            return self.contact.regain();
        }
        self.contact.lose(now);
        for path in &mut self.paths {
            path.probe_every = ASK_EVERY_NS;
            path.probe_at = now + ASK_EVERY_NS;
        }
    }

    /// True if path `at` is asked by a timer of its own, where that is due.
    #[inline]
    pub(crate) fn asks_path(&self, at: usize, cfg: &Config) -> bool {
        let path = &self.paths[at];
        match path.state {
            PathState::Down => true,
            PathState::Unproven => self.session.epoch.is_some() || self.lacks_contact(),
            // What waits there is repaired, and asks as well, where that is as often.
            PathState::Up | PathState::Suspect => {
                let repairs = || path.repair_ns(cfg, &self.life) <= cfg.asks_every_ns();
                self.lacks_contact() && (path.ring.waiting() == 0 || !repairs())
            }
        }
    }

    /// All paths are to say what has arrived on any of them.
    fn answer_everywhere(&mut self) {
        for path in &mut self.paths {
            path.echo = !path.rail_down;
            self.contact.echoes |= path.echo;
        }
    }

    /// A packet on path `at` takes acks along. `alone`: no path is healthy. Then it is not known on
    /// which of them acks arrive, and all say them. True if this packet says what others say.
    pub(crate) fn echo_acks(&mut self, at: usize, alone: bool) -> bool {
        if core::mem::take(&mut self.paths[at].echo) {
            self.contact.echoes = self.paths.iter().any(|p| p.echo);
            return true;
        }
        let doubted = |p: &Path| p.doubtful() || p.state == PathState::Down;
        // (What was said before is said once more by this packet only.)
        if alone && doubted(&self.paths[at]) && self.paths.iter().any(|p| p.window.has_news()) {
            for (i, path) in self.paths.iter_mut().enumerate() {
                path.echo |= i != at && !path.rail_down && doubted(path);
                self.contact.echoes |= path.echo;
            }
        }
        false
    }
}

impl Node {
    /// The peer has lost contact: it is answered on all paths. What we think of those that seem to
    /// carry may be old; they are asked.
    #[cold]
    pub(crate) fn restore_contact(&mut self, now: u64, peer: PeerId, at: usize) {
        let deaf = self.cfg.errs(Mutation::SayOnce);
        let Some(conn) = self.directory.conn_mut(peer).filter(|_| !deaf) else {
            return;
        };
        // Questions come on many paths at once, and one that is answered is enough.
        let pause_ns = ANSWER_EVERY_NS * conn.paths.len() as u64;
        if now < conn.contact.answered_ns + pause_ns && conn.contact.answered_ns > 0 {
            return;
        }
        (conn.contact.asked_at, conn.contact.answered_ns) = (at as u16, now);
        conn.answer_everywhere();
        for path in &mut conn.paths {
            path.want_ping |= path.healthy() && path.ring.waiting() == 0;
        }
        self.agenda.mark_ready(conn);
    }

    /// True if the silence of a peer that owes an answer proves that it is dead. `due`: when its
    /// timer was to be served.
    pub(crate) fn is_silent(&self, now: u64, due: u64, conn: &mut Conn) -> bool {
        let Some(since) = conn.life.owed_since else {
            return false;
        };
        if now - due > AWAY_NS {
            (conn.life.owed_since, conn.life.unanswered_since) = (Some(now), None);
            return false;
        }
        if !conn.depends() {
            conn.life.owed_since = None;
            return false;
        }
        let judged_at = conn.life.judged_at(&self.cfg);
        if judged_at.is_some_and(|at| now < at) {
            return false;
        }
        let (flaps, given) = (self.flaps(conn, since, now), conn.life.given(since));
        let proven = !self.absences.is_behind(now) && conn.was_asked(self.local.full);
        let most = if flaps { FLAPS_TIME } else { MORE_TIME };
        if (proven && !flaps) || given >= most {
            return true;
        }
        (conn.life.more_time_since_ns, conn.life.more_time) = (since, given + 1);
        false
    }

    /// True if nothing of ours got through to a peer that is heard, for so long that it is as good
    /// as dead.
    pub(crate) fn is_choked(&self, now: u64, conn: &mut Conn) -> bool {
        let timeout = self.cfg.silence_ns();
        if !self.cfg.reliable || conn.life.cut_since_ns > 0 || !conn.chokes(now, timeout) {
            return false;
        }
        let since = conn.life.unanswered_since.unwrap_or(now);
        let most = timeout + self.cfg.more_time_ns() * u64::from(FLAPS_TIME);
        let excused = self.flaps(conn, since, now) || conn.is_held_up(now, timeout);
        now.saturating_sub(since) >= most || !excused
    }

    /// True if rails to the peer came back since then, and none was up for long enough to ask
    /// where the peer is.
    fn flaps(&self, conn: &Conn, since: u64, now: u64) -> bool {
        let rails = conn.paths.iter().map(|p| p.local as usize);
        let mut rails = rails.map(|rail| &self.local.uptimes[rail]);
        rails.clone().any(|rail| rail.came_back(since))
            && !rails.any(|rail| rail.was_up(self.cfg.asks_ns(), since, now))
    }
}
