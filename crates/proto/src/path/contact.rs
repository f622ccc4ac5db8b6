//! Contact with a peer is lost while no path is known to carry what is sent on it. Perhaps each of
//! them carries one direction only, so that no path by itself brings an answer.
//!
//! Then what is known of paths counts for nothing. All of them are asked, at first each millisecond,
//! then ever more rarely, but often enough that chance alone cannot lose all questions before the
//! peer counts as dead. The questions say so ([`Header::FLAG_EVERYWHERE`]), and whoever is asked
//! like that answers on all of its paths, whatever it thinks of them: it may be wrong as well. One
//! answer is enough to know a path that carries.

use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::path::state::{Path, PathState};
use crate::peer::conn::Conn;

/// First pause between two questions on a path.
const ASK_EVERY_NS: u64 = 1_000_000;

impl Conn {
    /// Whether no path is known to carry.
    #[inline]
    pub fn lacks_contact(&self) -> bool {
        self.contact_lost && !self.paths.iter().any(Path::healthy)
    }

    /// A path fell under suspicion, or failed. If it was the last that was known to carry, all are
    /// asked.
    pub(crate) fn doubt_contact(&mut self, now: u64) {
        if self.lacks_contact() {
            return;
        }
        self.contact_lost = !self.paths.iter().any(Path::healthy);
        for path in self.paths.iter_mut().filter(|_| self.contact_lost) {
            path.probe_every = ASK_EVERY_NS;
            path.probe_at = now + ASK_EVERY_NS;
        }
    }

    /// Whether path `at` is asked by a timer of its own, where that is due.
    #[inline]
    pub(crate) fn asks_path(&self, at: usize, lost: bool) -> bool {
        let path = &self.paths[at];
        match path.state {
            PathState::Down => true,
            PathState::Unproven => self.epoch.is_some() || lost,
            // What waits there is repaired, and asks.
            PathState::Up | PathState::Suspect => lost && path.ring.waiting() == 0,
        }
    }

    /// All paths are to say what has arrived on any of them.
    fn answer_everywhere(&mut self) {
        let open = self.paths.iter().enumerate().filter(|(_, p)| !p.rail_down);
        self.echoes = open.fold(0, |echoes, (i, _)| echoes | 1 << i);
    }

    /// A packet on path `at` takes acks along. `alone`: no path is healthy. Then it is not known on
    /// which of them acks arrive, and all say them. Whether this packet says what others say.
    pub(crate) fn echo_acks(&mut self, at: usize, alone: bool) -> bool {
        let bit = 1 << at;
        if self.echoes & bit != 0 {
            self.echoes &= !bit;
            return true;
        }
        let doubted = |p: &Path| p.doubtful() || p.state == PathState::Down;
        if alone && doubted(&self.paths[at]) && self.paths.iter().any(|p| p.window.fresh() > 0) {
            let others = self.paths.iter().enumerate();
            let others = others.filter(|&(i, p)| i != at && !p.rail_down && doubted(p));
            self.echoes = others.fold(0, |echoes, (i, _)| echoes | 1 << i);
        }
        false
    }
}

impl Node {
    /// The peer has lost contact: it is answered on all paths. What we think of those that seem to
    /// carry may be old; they are asked.
    #[cold]
    pub(crate) fn restore_contact(&mut self, peer: PeerId) {
        let deaf = self.cfg.errs(Mutation::SayOnce);
        let Some(conn) = self.conn_mut(peer).filter(|_| !deaf) else {
            return;
        };
        conn.answer_everywhere();
        for path in &mut conn.paths {
            path.want_ping |= path.healthy() && path.ring.waiting() == 0;
        }
        self.wake(peer);
    }
}
