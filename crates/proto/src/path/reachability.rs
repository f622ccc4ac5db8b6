//! Reachability of a peer. Reachability is lost while no path is known to carry packets. Each path
//! may then still work in one direction, so that no path alone brings an answer.
//!
//! Path states are ignored in that state. All paths are probed, first every millisecond, then with
//! exponential backoff, but often enough that random loss alone cannot lose all probes before the
//! peer counts as dead. These probes carry `Header::FLAG_EVERYWHERE`: the peer answers them on all
//! of its paths, whatever their state there, since that state may be stale. One answer proves a
//! path.

use crate::base::config::{Config, TIMEOUT_EXTENSION};
use crate::base::mutation::Mutation;
use crate::base::types::{PathState, PeerId};
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::local::Local;
use crate::state::path::Path;

/// First interval between two probes of a path.
const ASK_EVERY_NS: u64 = 1_000_000;
/// Least interval, per path, between two answers on all paths. Without it, one probe on each of n
/// paths would cause n squared answers.
const ANSWER_EVERY_NS: u64 = 20_000;

/// Unanswered probes on each path before a peer counts as silent. If a third of all probes or
/// answers is lost, eight in a row are lost once in 9,000 times.
const ASKED_MIN: u8 = 8;
/// Most extensions of the timeout while our rails flap too often to probe. If paths have had too
/// few probes for other reasons, [`TIMEOUT_EXTENSION`] is the most.
const FLAPS_TIME: u8 = 2 * TIMEOUT_EXTENSION;
/// A timer served this late means that this process did not run (stopped, swapped): the peer's
/// silence then proves nothing.
const AWAY_NS: u64 = 500_000_000;

impl Conn {
    /// True if each path that could carry a probe has had so many unanswered probes that they
    /// cannot all have been lost. (`full`: rails without room.)
    fn was_asked(&self, full: u32) -> bool {
        let mut open = self
            .paths
            .iter()
            .filter(|p| !p.rail_down() && p.has_room(full));
        open.all(|p| p.probing.unanswered(self.life.heard_ns) >= ASKED_MIN)
    }
    /// True if a reliable connection (TCP, RC) is up, or was within the timeout: data or acks may
    /// wait on it behind long messages. If the network carries one direction only, the connection
    /// breaks before long.
    fn is_held_up(&self, now: u64, timeout_ns: u64) -> bool {
        let mut held = self.paths.iter().filter(|p| p.waits());
        held.any(|p| p.link.was_up(now, timeout_ns))
    }

    /// True if no path is known to carry packets.
    #[inline]
    pub fn is_unreached(&self) -> bool {
        self.reachability.is_lost() && !self.paths.iter().any(Path::healthy)
    }

    /// Handles a path that became suspect or failed. If no healthy path is left, all paths are
    /// probed.
    pub(crate) fn doubt_reachability(&mut self, now: u64) {
        if self.is_unreached() {
            return;
        }
        if self.paths.iter().any(Path::healthy) {
            return self.reachability.regain();
        }
        self.reachability.lose(now);
        for path in &mut self.paths {
            path.probing.restart(now, ASK_EVERY_NS);
        }
    }

    /// True if path `at` is probed by its own probe timer.
    #[inline]
    pub(crate) fn asks_path(&self, at: usize, cfg: &Config) -> bool {
        let path = &self.paths[at];
        match path.state() {
            PathState::Down => true,
            PathState::Unproven => self.session.epoch.is_some() || self.is_unreached(),
            // Retransmissions of waiting packets probe as well, if they are as frequent.
            PathState::Up | PathState::Suspect => {
                let ptos = || path.pto_ns(cfg, &self.life) <= cfg.probe_interval_max_ns();
                self.is_unreached() && (path.ring.waiting() == 0 || !ptos())
            }
        }
    }

    /// Makes each path repeat the acks of all paths.
    fn answer_everywhere(&mut self) {
        for path in &mut self.paths {
            path.acks.set_echo(!path.rail_down());
            self.reachability.echoes |= path.acks.echoes();
        }
    }

    /// Returns whether a packet on path `at` repeats the acks of other paths. `alone`: no path is
    /// healthy. It is then unknown which path delivers acks, so all doubtful paths repeat them.
    pub(crate) fn echo_acks(&mut self, at: usize, alone: bool) -> bool {
        if self.paths[at].acks.take_echo() {
            self.reachability.echoes = self.paths.iter().any(|p| p.acks.echoes());
            return true;
        }
        let doubted = |p: &Path| p.doubtful() || p.state() == PathState::Down;
        // (Only news makes the other paths repeat acks; otherwise this packet alone does.)
        if alone && doubted(&self.paths[at]) && self.paths.iter().any(|p| p.acks.has_news()) {
            for (i, path) in self.paths.iter_mut().enumerate() {
                if i != at && !path.rail_down() && doubted(path) {
                    path.acks.set_echo(true);
                }
                self.reachability.echoes |= path.acks.echoes();
            }
        }
        false
    }

    /// True if the peer is heard, but nothing sent to it was acknowledged for so long that the peer
    /// counts as dead.
    pub(crate) fn is_undeliverable(&mut self, now: u64, local: &Local, cfg: &Config) -> bool {
        let timeout = cfg.silence_ns();
        if !cfg.reliable || self.life.cut_since_ns > 0 || !self.delivers_nothing(now, timeout) {
            return false;
        }
        let since = self.life.unanswered_since.unwrap_or(now);
        let most = timeout + cfg.timeout_extension_ns() * u64::from(FLAPS_TIME);
        let retransmit_or_probe =
            self.flaps(since, now, local, cfg) || self.is_held_up(now, timeout);
        now.saturating_sub(since) >= most || !retransmit_or_probe
    }

    /// True if a rail to the peer came back after `since`, but no rail has been up for long enough
    /// to resolve the peer's address (ARP).
    fn flaps(&self, since: u64, now: u64, local: &Local, cfg: &Config) -> bool {
        let rails = self.paths.iter().map(|p| p.local as usize);
        let mut rails = rails.map(|rail| &local.uptimes[rail]);
        rails.clone().any(|rail| rail.came_back(since))
            && !rails.any(|rail| rail.was_up(cfg.neighbour_resolution_ns(), since, now))
    }
}

impl Context<'_> {
    /// Handles a probe of a peer that has lost reachability: answers on all paths. Paths that seem
    /// healthy here are probed too, since that state may be stale.
    #[cold]
    pub(crate) fn restore_reachability(&mut self, now: u64, peer: PeerId, at: usize) {
        let unreachable = self.cfg.errs(Mutation::SayOnce);
        let Some(conn) = self.directory.conn_mut(peer).filter(|_| !unreachable) else {
            return;
        };
        // Such probes come on many paths at once; answering one of them is enough.
        let pause_ns = ANSWER_EVERY_NS * conn.paths.len() as u64;
        if now < conn.reachability.answered_ns + pause_ns && conn.reachability.answered_ns > 0 {
            return;
        }
        (conn.reachability.asked_at, conn.reachability.answered_ns) = (at as u16, now);
        conn.answer_everywhere();
        for path in &mut conn.paths {
            path.probing
                .request_if(path.healthy() && path.ring.waiting() == 0);
        }
        self.run_queue.mark_ready(conn);
    }
}

impl Recovery<'_> {
    /// True if the silence of a peer that owes an answer proves that the peer is dead. `due`: the
    /// deadline that this call serves.
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
        let judged_at = conn.life.judged_at(self.cfg);
        if judged_at.is_some_and(|at| now < at) {
            return false;
        }
        let (flaps, given) = (
            conn.flaps(since, now, self.local, self.cfg),
            conn.life.given(since),
        );
        let proven = !self.descheduled.is_catching_up(now) && conn.was_asked(self.local.full);
        let most = if flaps { FLAPS_TIME } else { TIMEOUT_EXTENSION };
        if (proven && !flaps) || given >= most {
            return true;
        }
        (conn.life.more_time_since_ns, conn.life.more_time) = (since, given + 1);
        false
    }
}
