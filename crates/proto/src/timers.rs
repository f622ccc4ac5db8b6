//! Time: delayed acks, repair, duels between paths, probes, and the death of peers.

use crate::conn::{Conn, InboundState, SendKind, SendXfer};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::path::{Duel, Path, PathState};
use crate::patience::Expiry;
use crate::resend::Why;
use crate::send_ring::FrameRef;
use crate::types::{Event, PeerId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem::replace;
use marline_wire::FLAG_PUT;

/// A second round of a duel lasts at least this: a peer that answers on one rail has read its
/// others long before (measured: every socket is polled within tens of microseconds).
const DUEL_NS: u64 = 1_000_000;
/// Served this late, we were away ourselves (stopped, swapped): silence then proves nothing.
const AWAY_NS: u64 = 500_000_000;
/// Timers that wait until all is read look again after this.
const BEHIND_LOOK_NS: u64 = 100_000;
/// Paths that are asked as witnesses of a duel: one may be lost.
const WITNESSES: usize = 2;
/// Probes of a path that is down back off to this, and to a share of the time after which a silent
/// peer is dead: where such a path is all that is left, nothing else asks, and probes get lost. (Of
/// ten on a path that loses a third of its packets, and of their answers, all were.)
const PROBE_CAP_NS: u64 = 100_000_000;
const PROBES_PER_TIMEOUT: u64 = 50;
/// A path that fell is left alone for at most this share of that time.
const HOLDS_PER_TIMEOUT: u64 = 5;
/// Probes of a path that never worked (no route, most likely) back off to this.
const UNPROVEN_CAP_NS: u64 = 2_000_000_000;
/// Expired repair timers after which another source port is tried where there is no other path.
const REHASH_AFTER: u32 = 3;

impl Node {
    /// Tells that the owner polls now, by its progress thread or not.
    #[inline]
    pub fn on_poll(&mut self, now_ns: u64, by_thread: bool) {
        self.by_thread = by_thread;
        self.absences.note_poll(self.last_poll_ns, now_ns);
        self.last_poll_ns = now_ns;
        if now_ns >= self.tidy_at {
            self.tidy(now_ns);
        }
    }

    /// Tells that a look at all rails found nothing more to read. Until then, after a stretch
    /// without polls, nobody counts as late.
    #[inline]
    pub fn caught_up(&mut self) {
        self.absences.caught_up();
    }

    /// When `handle_timeouts` has something to do next.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.late.is_some() {
            return Some(0);
        }
        let peers = self.deadlines.peek().map(|Reverse((at, _))| *at);
        match self.grants_at.min(self.anyone.at_ns) {
            u64::MAX => peers,
            at => Some(peers.map_or(at, |p| p.min(at))),
        }
    }

    /// Does what is due.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        self.take_late();
        if self.grants_at <= now_ns {
            self.pump_grants(now_ns);
        }
        if self.anyone.at_ns <= now_ns {
            self.ask_everyone(now_ns);
        }
        self.tidy_deadlines();
        while let Some(&Reverse((at, index))) = self.deadlines.peek() {
            let peer = PeerId(index);
            let stale = self.conn(peer).is_none_or(|c| c.armed != at);
            // Entries that an earlier deadline replaced go before anyone sleeps until them.
            if at > now_ns && !stale {
                break;
            }
            self.deadlines.pop();
            if stale {
                continue;
            }
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            conn.armed = u64::MAX;
            let dead = !conn.dead && self.service(now_ns, at, &mut conn) && !conn.closed;
            self.put(conn);
            if dead {
                self.bury(now_ns, peer, false);
            }
            self.touch(peer, now_ns);
        }
    }

    /// Sets the peer's next deadline after an ordinary packet came or left, or a receive was
    /// posted. Nothing of that is due sooner than an ack or a repair: an earlier deadline serves.
    #[inline]
    pub(crate) fn touch_soon(&mut self, peer: PeerId, now: u64) {
        let soonest = self.cfg.ack_delay_ns.min(self.cfg.repair_floor_ns / 2);
        if self.conn(peer).is_none_or(|c| c.armed > now + soonest) {
            self.touch(peer, now);
        }
    }

    /// Sets the peer's next deadline.
    pub(crate) fn touch(&mut self, peer: PeerId, now: u64) {
        // What is late is not known before all is read.
        let soonest = match self.absences.is_behind(now) {
            true => now + BEHIND_LOOK_NS,
            false => 0,
        };
        let Node {
            cfg,
            peers,
            full,
            stalled,
            absences,
            ..
        } = self;
        let conn = peers.get_mut(peer.0 as usize);
        let Some(conn) = conn.and_then(|p| p.conn.as_deref_mut()) else {
            return;
        };
        if conn.dead || conn.closed {
            return;
        }
        let mut next = conn.owed_since.map_or(u64::MAX, |t| t + cfg.silence_ns());
        let (mut held, lost) = (false, conn.lacks_contact());
        for (at, path) in conn.paths.iter().enumerate() {
            // What is due and finds no room is asked for again when there is room.
            if path.window.fresh() > 0 && *full != 0 && conn.holds_acks(at, cfg.policy, *full) {
                held = true;
            } else if path.window.fresh() > 0 {
                next = next.min(path.ack_since + cfg.ack_delay_ns);
            }
            if let Some((due, _)) = conn.repair_at(at, cfg, absences) {
                next = next.min(due.max(soonest));
            }
            if path.rail_down && path.ring.waiting() > 0 && !cfg.errs(Mutation::Strand) {
                next = next.min(now + cfg.repair_cap_ns);
            }
            if conn.asks_path(at, lost) {
                next = next.min(path.probe_at);
            }
            if let Some(duel) = &path.duel {
                let (verdict, draw) = path.duel_ends(duel);
                let ends = if now < verdict { verdict } else { draw };
                next = next.min(ends.max(soonest));
            }
        }
        if held && !replace(&mut conn.stalled, true) {
            stalled.push(peer);
        }
        if conn.watched() && cfg.reliable {
            let last = conn.heard_ns.max(conn.pinged_ns);
            next = next.min(if last == 0 { now } else { last } + cfg.peer_timeout_ns / 5);
        }
        // A deadline in the past is served at the next call, once: never in a loop within one.
        let twice = next < conn.armed && cfg.errs(Mutation::KeepDeadlines);
        let next = next.max(now + 1);
        if next < conn.armed || twice {
            conn.armed = next;
            let entry = Reverse((conn.armed, peer.0));
            self.deadlines.push(entry);
        }
        if let Some(conn) = self.conn_mut(peer).filter(|c| !c.roomy && c.is_roomy()) {
            conn.roomy = true;
            self.note_roomy(peer.0, now);
        }
    }

    /// Puts the peer into the queue of `poll_transmit`.
    pub(crate) fn wake(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(peer.0 as usize) else {
            return;
        };
        if let Some(conn) = entry.conn.as_deref_mut() {
            Node::mark_ready(&mut self.ready, conn);
        }
    }

    /// Everything of one peer that is due; whether the peer is dead.
    fn service(&mut self, now: u64, due: u64, conn: &mut Box<Conn>) -> bool {
        if let Some(since) = conn.owed_since {
            if now - due > AWAY_NS {
                (conn.owed_since, conn.unanswered_since) = (Some(now), None);
            } else if !conn.depends() {
                conn.owed_since = None;
            } else if now.saturating_sub(since) >= self.cfg.silence_ns()
                && !self.cfg.errs(Mutation::Immortal)
            {
                return true;
            }
        }
        let delay = self.cfg.ack_delay_ns;
        if conn
            .paths
            .iter()
            .any(|p| p.window.fresh() > 0 && now >= p.ack_since + delay)
        {
            Node::mark_ready(&mut self.ready, conn);
        }
        for at in 0..conn.paths.len() {
            self.rescue(conn, at);
            if !self.absences.is_behind(now) {
                match conn.repair_at(at, &self.cfg, &self.absences) {
                    Some((due, Expiry::Repair)) if due <= now => self.repair(now, conn, at),
                    Some((due, Expiry::Ask)) if due <= now => self.ask_first(now, conn, at),
                    _ => {}
                }
                self.end_duel(now, conn, at);
            }
            self.probe(now, conn, at);
        }
        self.keep_alive(now, conn);
        let heeded = self.cfg.reliable && !self.cfg.errs(Mutation::Immortal);
        heeded && conn.chokes(now, self.cfg.silence_ns())
    }

    /// What waits on a path whose rail is down has no timer there: it leaves on another path, as
    /// soon as there is one. (It may have been sent in the moment in which the rail was tried
    /// again, or when this path was the last.)
    fn rescue(&mut self, conn: &mut Box<Conn>, at: usize) {
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
    fn ask_first(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        self.absences.age(now);
        let path = &mut conn.paths[at];
        path.asked_from = path.repair_from;
        let alone = !has_rivals(conn, at);
        conn.paths[at].want_ping |= alone;
        if !alone {
            ask_rivals(conn, at, self.full, 1);
        }
        Node::mark_ready(&mut self.ready, conn);
    }

    /// A repair timer expired: send the oldest waiting packet's frames again elsewhere, and from
    /// the second time on ask who is to blame.
    fn repair(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
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
            return self.evacuate(conn, at);
        }
        if path.sizes.is_probe(number) {
            return self.probe_lost(now, conn, at);
        }
        path.backoff += 1;
        path.stats.repairs += 1;
        path.repaired = Some(number);
        if path.backoff >= REHASH_AFTER && !others {
            path.flow = (path.flow + 1) % 4;
        }
        let code = path.send_code();
        let suspicious = path.backoff >= 2;
        if suspicious {
            self.one_packet(&mut frames);
            path.want_ping = true;
            // What carried our acks may be what gets lost: the repair says again what came.
            path.window.renew();
            if path.state == PathState::Up {
                path.state = PathState::Suspect;
            }
            if others && path.duel.is_none() {
                path.duel = Some(Duel::new(now, false));
            }
        }
        for frame in frames {
            conn.requeue(frame, at, Why::Repair);
            conn.resend.hedge(frame, code);
        }
        if suspicious {
            conn.doubt_contact(now);
        }
        if suspicious && others {
            ask_rivals(conn, at, self.full, WITNESSES);
        }
        Node::mark_ready(&mut self.ready, conn);
    }

    /// Path `acked` just had news of packets sent at `newest_acked_sent_ns`: rivals in a duel
    /// that still have none are weighed against it.
    pub(crate) fn judge_rivals(&mut self, now: u64, conn: &mut Box<Conn>, acked: usize) {
        let witness_ns = conn.paths[acked].newest_acked_sent_ns;
        for at in (0..conn.paths.len()).filter(|&i| i != acked) {
            let Some(duel) = &mut conn.paths[at].duel else {
                continue;
            };
            if witness_ns < duel.started_ns {
                continue;
            }
            if duel.second || self.cfg.errs(Mutation::Hasty) {
                duel.second = true;
                // The verdict is for the timer, after every rail was read: the path's own answer
                // may be in the next socket.
                duel.answered_ns.get_or_insert(now);
            } else {
                *duel = Duel::new(now, true);
                conn.paths[at].want_ping = true;
                ask_rivals(conn, at, self.full, WITNESSES);
            }
        }
    }

    fn end_duel(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let patient = self.absences.patience_ns(conn) > 0;
        let path = &mut conn.paths[at];
        let Some(duel) = path.duel else { return };
        let (verdict, draw) = path.duel_ends(&duel);
        let answered = duel.answered_ns.filter(|_| duel.second);
        if let Some(answered) = answered.filter(|_| now >= verdict) {
            // It, or we, may have been taken off the processor between two sockets.
            let fell_silent = patient && conn.lively_ns + path.answer_ns(&self.cfg) < now;
            if (self.absences.gap_end_ns > answered || fell_silent) && !duel.patient {
                path.duel = Some(Duel {
                    answered_ns: Some(now),
                    patient: true,
                    ..duel
                });
                return;
            }
            self.path_down(now, conn, at);
        } else if now >= draw {
            // Nobody answered: the peer is silent, not the path.
            conn.paths[at].duel = None;
        }
    }

    /// Gives a path up, unless it is the last.
    pub(crate) fn path_down(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let other = |(i, p): (usize, &Path)| i != at && p.usable();
        let last = !conn.paths.iter().enumerate().any(other);
        let kept = self.cfg.errs(Mutation::Cling);
        if last || kept || conn.paths[at].state == PathState::Down {
            conn.paths[at].duel = None;
            return;
        }
        let hold_max_ns = self.cfg.peer_timeout_ns / HOLDS_PER_TIMEOUT;
        conn.paths[at].fall(now, hold_max_ns);
        conn.doubt_contact(now);
        self.evacuate(conn, at);
        let event = conn.paths[at].changed(conn.peer);
        self.events.push_back(event);
    }

    fn probe(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let lost = conn.lacks_contact();
        if now < conn.paths[at].probe_at || !conn.asks_path(at, lost) {
            return;
        }
        let path = &mut conn.paths[at];
        if path.trial.active && !lost {
            if path.next_trial(now) {
                self.evacuate(conn, at);
            }
            Node::mark_ready(&mut self.ready, conn);
            return;
        }
        let unproven = path.state == PathState::Unproven;
        // What is under way on a new path asks as well as a probe would.
        let asks = path.repair_at(&self.cfg).filter(|_| path.backoff == 0);
        if let Some(at) = asks.filter(|&at| unproven && !lost && at > now) {
            path.probe_at = at;
            return;
        }
        path.probe_at = now + path.probe_every;
        let cap = if unproven && !lost {
            UNPROVEN_CAP_NS
        } else {
            PROBE_CAP_NS.min(self.cfg.peer_timeout_ns / PROBES_PER_TIMEOUT)
        };
        path.probe_every = (path.probe_every * 2).min(cap);
        path.flow = (path.flow + 1) % 4;
        if path.rail_down {
            return;
        }
        path.want_ping = true;
        if path.state == PathState::Down {
            self.evacuate(conn, at);
        }
        Node::mark_ready(&mut self.ready, conn);
    }

    /// Ends everything that names a dead peer; `refused`: its host says that the process is gone.
    pub(crate) fn bury(&mut self, now: u64, peer: PeerId, refused: bool) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        conn.dead = true;
        // One that never spoke has been silent since it was asked.
        let since = match conn.heard_ns {
            0 => conn.owed_since.unwrap_or(now),
            heard => heard,
        };
        let silent_ns = now.saturating_sub(since);
        let heard = silent_ns < self.cfg.silence_ns() / 2;
        self.stats.peers_dead += 1;
        self.events.push_back(Event::PeerDead {
            peer,
            silent_ms: silent_ns / 1_000_000,
            refused,
            heard,
        });
        self.departs(peer, now);
        self.end_peer(now, peer, None);
        self.forget_packets(peer);
        self.tell_anyone();
    }

    /// Ends every operation that names a peer which will not speak again. `arrived`: it said that
    /// all messages below this number did.
    pub(crate) fn end_peer(&mut self, now: u64, peer: PeerId, arrived: Option<u32>) {
        let window = self.conn(peer).map_or(0, |c| c.credit_window);
        self.credit_promised -= window;
        self.end_sends(peer, arrived);
        self.fail_inbound(peer);
        // What it was granted is free for others.
        self.pump_grants(now);
        while let Some(posted) = self.matching.take_directed(peer) {
            if self.cfg.errs(Mutation::ForgetReceives) {
                continue;
            }
            let handle = posted.spec.handle;
            if self.multi.get(&handle).is_some_and(|m| m.outstanding == 0) {
                self.multi.remove(&handle);
            }
            self.events.push_back(Event::RecvFailed { handle });
        }
    }

    /// Ends every send to a peer that is gone.
    fn end_sends(&mut self, peer: PeerId, arrived: Option<u32>) {
        let there = |send: &SendXfer| {
            // A remote write that came whole may have been refused.
            let put = send.head.flags & FLAG_PUT != 0;
            let message = matches!(send.kind, SendKind::Eager | SendKind::Rendezvous) && !put;
            // Numbers wrap around; less than half of them are under way.
            let before = |below: u32| (below.wrapping_sub(send.head.number) as i32) > 0;
            message && arrived.is_some_and(before)
        };
        let keys: Vec<_> = self
            .sends
            .iter()
            .filter(|(_, s)| s.peer == peer)
            .map(|(k, _)| k)
            .collect();
        for key in keys {
            if let Some(send) = self.sends.remove(key) {
                self.events.push_back(Event::SendDone {
                    handle: send.handle,
                    ok: there(&send),
                });
            }
        }
        if let Some(conn) = self.conn_mut(peer) {
            conn.queue.clear();
            conn.bulk.clear();
            conn.resend.clear();
            conn.rendezvous.clear();
            conn.replies.clear();
        }
    }

    /// Ends every message that a dead peer was sending; whole ones stay to be received.
    fn fail_inbound(&mut self, peer: PeerId) {
        let keys: Vec<_> = self
            .inbounds
            .iter()
            // One held back by a gap before it can never be matched.
            .filter(|(_, i)| i.peer == peer && (!i.complete() || i.state == InboundState::Held))
            .map(|(k, _)| k)
            .collect();
        for key in keys {
            let Some(inbound) = self.inbounds.get(key) else {
                continue;
            };
            let (state, bounced, reply) = (inbound.state, inbound.bounced, inbound.reply);
            self.matching.remove_unexpected(key);
            self.drop_inbound(key);
            if let InboundState::Bound { handle, .. } = state {
                if reply {
                    self.events.push_back(Event::ReadDone { handle, ok: false });
                } else if self.leave_multi(handle) {
                    self.events.push_back(Event::RecvFailed { handle });
                }
            }
            if bounced {
                self.events.push_back(Event::BounceFree {
                    inbound: key.name(),
                });
            }
        }
        if let Some(conn) = self.conn_mut(peer) {
            conn.inbound.clear();
            conn.pending_reads.clear();
        }
    }
}

impl Path {
    /// When a round of the duel may be decided, and when nobody won it.
    fn duel_ends(&self, duel: &Duel) -> (u64, u64) {
        let round = DUEL_NS.max(4 * self.srtt_ns);
        let answered = duel.answered_ns;
        let from = duel.started_ns.max(answered.unwrap_or(0));
        (from + round, duel.started_ns + 10 * round)
    }
}

/// Sends a fresh probe on other usable paths, so that a duel has witnesses: on such first whose
/// rail has room, and that share no rail with it, then on those that were heard last. A witness
/// that is lost twice begins a duel
/// of its own. Were all paths asked, each duel would bring about more than one where there are
/// sixteen and a tenth is lost, and they would never end (seed 700815: 7 million packets).
fn ask_rivals(conn: &mut Conn, at: usize, full: u32, most: usize) {
    let (local, remote) = (conn.paths[at].local, conn.paths[at].remote);
    let order = |(i, path): (usize, &Path)| {
        let shared = (path.local == local) as u8 + (path.remote == remote) as u8;
        let heard = Reverse(path.newest_acked_sent_ns);
        (!path.has_room(full), shared, heard, i)
    };
    let rivals = conn.paths.iter().enumerate();
    let rivals = rivals.filter(|&(i, p)| i != at && p.usable() && p.duel.is_none());
    let mut rivals: Vec<_> = rivals.map(order).collect();
    rivals.sort_unstable();
    for &(.., i) in rivals.iter().take(most) {
        conn.paths[i].want_ping = true;
    }
}

/// Whether another path may work.
fn has_rivals(conn: &Conn, at: usize) -> bool {
    let mut paths = conn.paths.iter().enumerate();
    paths.any(|(i, p)| i != at && p.usable())
}
