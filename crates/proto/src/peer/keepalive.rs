//! Keepalive probes. Every peer with outstanding operations is probed. If a death is to end
//! receives from any source, all peers are probed while such a receive waits: it names no peer, so
//! without these probes it could wait forever for a dead one.

use crate::base::mutation::Mutation;
use crate::base::types::{Event, PeerId, RecvSpec};
use crate::node::Node;
use crate::state::conn::Conn;
use alloc::boxed::Box;

/// Peers checked at once: 26 us at 100 ns each with cold caches, during which the owner's lock is
/// held.
const LOOK_MAX: usize = 256;
/// Pause before the next batch: 256,000 peers in a second.
const LOOK_EVERY_NS: u64 = 1_000_000;

impl Node {
    /// Prepares a receive that found no message. `false`: it fails, because of a death that no
    /// receive has reported yet.
    pub(crate) fn await_anyone(&mut self, spec: &RecvSpec, now_ns: u64) -> bool {
        if !self.cfg.any_source_fails || !spec.is_from_any_source() {
            return true;
        }
        if core::mem::take(&mut self.run_queue.anyone.unreported_death) {
            return false;
        }
        if self.run_queue.anyone.at_ns == u64::MAX && self.cfg.reliable {
            self.run_queue.anyone.at_ns = now_ns + self.cfg.keepalive_interval_ns();
        }
        true
    }

    /// Handles a peer's death: waiting receives from any source fail, or else the next one will.
    /// (The death of a stranger ends none: no operation can name it.)
    pub(crate) fn fail_receives_from_anyone(&mut self, dead: PeerId) {
        let known = self.directory.is_named(dead) || self.cfg.errs(Mutation::MournStrangers);
        let told = self.cfg.any_source_fails && !self.cfg.errs(Mutation::HideDeath);
        if !told || !known {
            return;
        }
        self.run_queue.anyone.unreported_death = true;
        while let Some(posted) = self.incoming.receives_mut().take_from_anyone() {
            self.run_queue.anyone.unreported_death = false;
            let handle = posted.spec.handle;
            self.events.push_back(Event::RecvFailed { handle });
        }
    }

    /// Returns whether a receive from any source waits without keepalive probes (an invariant
    /// check).
    pub(crate) fn forgets_anyone(&self) -> bool {
        let watched = self.cfg.any_source_fails && self.cfg.reliable;
        watched
            && self.run_queue.anyone.at_ns == u64::MAX
            && self.incoming.receives().waits_for_anyone()
    }

    /// Probes every peer that was heard before, while a receive from any source waits.
    pub(crate) fn keepalive_all(&mut self, now: u64) {
        let first = self.run_queue.anyone.next;
        if first == 0 && !self.incoming.receives().waits_for_anyone() {
            self.run_queue.anyone.at_ns = u64::MAX;
            return;
        }
        let end = (first + LOOK_MAX).min(self.directory.peers.len());
        for index in first..end {
            let peer = PeerId(index as u32);
            if !self.directory.is_named(peer) {
                continue; // its death ends no receive
            }
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            let asked = conn.session.epoch.is_some()
                && !conn.session.dead
                && !conn.session.own
                && self.ask(now, &mut conn);
            self.put(conn);
            if asked {
                self.touch(peer, now);
            }
        }
        let done = end == self.directory.peers.len();
        self.run_queue.anyone.next = if done { 0 } else { end };
        let pause_ns = if done {
            self.cfg.keepalive_interval_ns()
        } else {
            LOOK_EVERY_NS
        };
        self.run_queue.anyone.at_ns = now + pause_ns;
    }

    /// Probes a peer with outstanding operations if that is due.
    pub(crate) fn keep_alive(&mut self, now: u64, conn: &mut Box<Conn>) {
        if conn.watched() && self.cfg.reliable {
            self.ask(now, conn);
        }
    }

    /// Probes a peer without outstanding operations; `false`: there is no such peer.
    pub(crate) fn keepalive_unused(&mut self, now: u64, peer: PeerId) -> bool {
        let Some(mut conn) = self.take(peer) else {
            return false;
        };
        let asked = conn.session.epoch.is_some() && !conn.session.own && self.cfg.reliable;
        let asked = asked && self.ask(now, &mut conn);
        self.put(conn);
        if asked {
            self.touch(peer, now);
        }
        true
    }

    /// Probes a peer that was neither heard nor probed recently. Returns whether it did.
    fn ask(&mut self, now: u64, conn: &mut Box<Conn>) -> bool {
        let every = self.cfg.keepalive_interval_ns();
        let last = conn.life.heard_ns.max(conn.life.pinged_ns);
        if conn.session.closed || now < last + every {
            return false;
        }
        conn.life.pinged_ns = now;
        // The peer's silence counts from its last packet if that was recent, or from this probe if
        // it was never heard.
        let since = match conn.life.heard_ns {
            0 => now,
            _ => last.max(now.saturating_sub(2 * every)),
        };
        conn.life.owed_since.get_or_insert(since);
        let free = conn.small_path(None, false, self.local.full);
        if let Some(at) = free.or_else(|| conn.small_path(None, false, 0)) {
            conn.paths[at].probing.request();
            self.run_queue.mark_ready(conn);
        }
        true
    }
}
