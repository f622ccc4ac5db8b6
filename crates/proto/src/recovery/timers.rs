//! Timers: delayed acks, retransmissions, path comparisons, probes, and the death of peers.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::recovery::descheduled::Expiry;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::descheduled::Descheduled;
use crate::state::session::Death;
use core::cmp::Reverse;
use core::mem::replace;

/// Interval at which timers check again while not all rails were read after a poll gap.
const CATCH_UP_CHECK_NS: u64 = 100_000;
impl Node {
    /// Notes that the owner polls, in its progress thread or in the application.
    #[inline]
    pub fn on_poll(&mut self, now_ns: u64, by_thread: bool) {
        self.descheduled.note_poll(now_ns, by_thread);
        if now_ns >= self.directory.reclaim_at {
            self.reclaim(now_ns);
        }
    }

    /// Notes that all rails were read. After a poll gap no peer counts as late before that.
    #[inline]
    pub fn caught_up(&mut self) {
        self.descheduled.caught_up();
    }

    /// When `handle_timeouts` is to be called next.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.pending.deferred_ack.is_some() {
            return Some(0);
        }
        let peers = self.run_queue.deadlines.peek().map(|Reverse((at, _))| *at);
        match self
            .incoming
            .grants()
            .deadline()
            .min(self.incoming.any_source().deadline())
        {
            u64::MAX => peers,
            at => Some(peers.map_or(at, |p| p.min(at))),
        }
    }

    /// Serves all timers that are due.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        self.take_deferred();
        if self.incoming.grants().deadline() <= now_ns {
            let (incoming, mut ctx) = self.incoming();
            incoming.pump_grants(&mut ctx, now_ns);
        }
        if self.incoming.any_source().deadline() <= now_ns {
            self.keepalive_all(now_ns);
        }
        if !self.cfg.errs(Mutation::KeepDeadlines) {
            self.run_queue.prune_deadlines(&self.directory);
        }
        while let Some(&Reverse((at, index))) = self.run_queue.deadlines.peek() {
            let peer = PeerId(index);
            let stale = self.conn(peer).is_none_or(|c| c.listed.armed != at);
            // Deadlines that an earlier one replaced are dropped before the owner would sleep until
            // them.
            if at > now_ns && !stale {
                break;
            }
            self.run_queue.deadlines.pop();
            self.stats.visited += 1;
            if stale {
                continue;
            }
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            conn.listed.armed = u64::MAX;
            let why = match conn.session.dead {
                true => None,
                false => self.recover(&mut conn, |recovery, conn| recovery.serve(now_ns, at, conn)),
            };
            let why = why.filter(|_| !conn.session.closed);
            let forgotten = conn.forgotten_at(&self.cfg) <= now_ns;
            self.put(conn);
            if forgotten {
                self.forget_unvalidated(now_ns, peer);
                continue;
            }
            if let Some(why) = why {
                self.tear_down(now_ns, peer, why);
            }
            self.context().touch(peer, now_ns);
        }
    }
}

impl Context<'_> {
    /// Updates the peer's next deadline after an ordinary packet or a posted receive. Their first
    /// deadline is that of an ack or a retransmission, so an earlier or equally near deadline stays
    /// as it is.
    #[inline]
    pub(crate) fn touch_soon(&mut self, peer: PeerId, now: u64) {
        let soonest = self.cfg.ack_delay_ns.min(self.cfg.pto_floor_ns / 2);
        if self
            .conn(peer)
            .is_none_or(|c| c.listed.armed > now + soonest)
        {
            self.touch(peer, now);
        }
    }

    /// Updates the peer's next deadline.
    pub(crate) fn touch(&mut self, peer: PeerId, now: u64) {
        // Lateness is unknown before all rails were read.
        let soonest = match self.descheduled.is_catching_up(now) {
            true => now + CATCH_UP_CHECK_NS,
            false => 0,
        };
        let Context {
            cfg,
            local,
            directory,
            run_queue,
            descheduled,
            ..
        } = self;
        let full = local.full;
        let Some(conn) = directory.conn_mut(peer) else {
            return;
        };
        if conn.session.is_over() {
            return;
        }
        let mut next = conn.life.judged_at(cfg).unwrap_or(u64::MAX);
        if conn.session.lost {
            next = now;
        }
        let mut held = false;
        for at in 0..conn.paths.len() {
            // Acks without room are due again when a rail has room. Before some link is up nothing
            // can leave; then this runs again.
            let acks = conn.paths[at].acks.any() && conn.paths.iter().any(|p| p.link.up);
            let short = full != 0 || conn.is_of_stranger();
            if acks && short && conn.holds_acks(at, cfg.policy, full) {
                // (Received bytes, too, end the shortage of an address that is not validated.)
                held |= full != 0;
            } else if acks {
                next = next.min(conn.paths[at].acks.due_ns(cfg.ack_delay_ns));
            }
            next = next.min(conn.path_deadline(at, now, soonest, cfg, descheduled));
        }
        if held && !replace(&mut conn.listed.stalled, true) {
            run_queue.stalled.push(peer);
        }
        next = next.min(conn.forgotten_at(cfg));
        if conn.watched() && cfg.reliable {
            let last = conn.life.heard_ns.max(conn.life.pinged_ns);
            next = next.min(if last == 0 { now } else { last } + cfg.keepalive_interval_ns());
        }
        // A deadline in the past is served at the next call, once, never in a loop within a call.
        let twice = next < conn.listed.armed && cfg.errs(Mutation::KeepDeadlines);
        let next = next.max(now + 1);
        if next < conn.listed.armed || twice {
            conn.listed.armed = next;
            run_queue
                .deadlines
                .push(Reverse((conn.listed.armed, peer.0)));
        }
        if !conn.listed.oversized && conn.is_oversized() {
            conn.listed.oversized = true;
            directory.note_oversized(peer.0, now);
        }
        // Each of many acks handled at once can bring a deadline forward.
        if !cfg.errs(Mutation::KeepDeadlines) {
            run_queue.prune_deadlines(directory);
        }
    }
}

impl Recovery<'_> {
    /// Serves all timers of one peer. Returns the cause of death if the peer is dead.
    fn serve(&mut self, now: u64, due: u64, conn: &mut Conn) -> Option<Death> {
        if self.is_silent(now, due, conn) && !self.cfg.errs(Mutation::Immortal) {
            return Some(Death::Silent);
        }
        if conn.session.lost {
            return Some(Death::Lost);
        }
        let delay = self.cfg.ack_delay_ns;
        if conn.paths.iter().any(|p| p.acks.is_due(now, delay)) {
            self.actions.mark_ready();
        }
        for at in 0..conn.paths.len() {
            self.requeue_stranded(conn, at);
            if conn.paths[at].validation.is_blocked() {
                self.relink(now, conn, at);
                continue;
            }
            if !self.descheduled.is_catching_up(now) {
                match conn.pto_at(at, self.cfg, self.descheduled) {
                    Some((due, Expiry::Pto)) if due <= now => self.on_pto(now, conn, at),
                    Some((due, Expiry::Ask)) if due <= now => self.ask_first(now, conn, at),
                    Some((due, Expiry::Stall)) if due <= now => self.stalled(now, conn, at),
                    Some((due, Expiry::Hedge)) if due <= now => self.hedge(now, conn, at),
                    _ => {}
                }
                self.end_comparison(now, conn, at);
            }
            self.relink(now, conn, at);
            self.probe(now, conn, at);
            if let Some(over) = conn.paths[at].serve_native(now, self.cfg) {
                self.actions.mark_ready();
                if over {
                    return Some(Death::Lost);
                }
            }
        }
        self.keep_alive(now, conn);
        let choked =
            conn.is_undeliverable(now, self.local, self.cfg) && !self.cfg.errs(Mutation::Immortal);
        choked.then_some(Death::Silent)
    }
}

impl Recovery<'_> {
    /// Probes a peer with outstanding operations, if a probe is due.
    fn keep_alive(&mut self, now: u64, conn: &mut Conn) {
        let watched = conn.watched() && self.cfg.reliable;
        if watched && conn.ask(now, self.cfg, self.local.full) == Some(true) {
            self.actions.mark_ready();
        }
    }
}

impl Conn {
    /// The next deadline of path `at`, except that of acks: a retransmission, a probe, or the end
    /// of a comparison. Timers that need all rails to be read are not due before `soonest`.
    #[inline]
    fn path_deadline(
        &self,
        at: usize,
        now: u64,
        soonest: u64,
        cfg: &Config,
        descheduled: &Descheduled,
    ) -> u64 {
        let path = &self.paths[at];
        let mut next = path.link.retry_at().unwrap_or(u64::MAX);
        if path.validation.is_blocked() {
            return next; // as RFC 9002, section 6.2.2.1: nothing could leave
        }
        if let Some((due, _)) = self.pto_at(at, cfg, descheduled) {
            next = next.min(due.max(soonest));
        }
        if path.rail_down() && path.ring.waiting() > 0 && !cfg.errs(Mutation::Strand) {
            next = next.min(now + cfg.pto_cap_ns);
        }
        if self.asks_path(at, cfg) {
            next = next.min(path.probing.due_ns());
        }
        if let Some(due) = path.native_due(cfg) {
            next = next.min(due);
        }
        if let Some(comparison) = path.health.comparison() {
            let (verdict, draw) = path.comparison_ends(comparison);
            let ends = if now < verdict { verdict } else { draw };
            next = next.min(ends.max(soonest));
        }
        next
    }
}
