//! Events of rails: down or up, no room, packets too big for a network on the way, and refusals by
//! a host without a listener (of datagrams and connections alike).

use crate::base::config::Config;
use crate::base::evidence::Evidence;
use crate::base::mutation::Mutation;
use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::session::Death;

/// Number of refusals (ICMP port unreachable, or refused connections) that prove a dead process. In
/// addition nothing was heard in between, every path that has worked was refused, and the refusals
/// lasted for one of the times below.
const REFUSALS: u32 = 3;
/// Time that refusals must last if no filter can be their cause: the peer's connections ended after
/// all its data (FIN) without a notice of idle eviction, or the peer's name belongs to this host.
const CERTAIN_NS: u64 = 100_000_000;
/// Time that refusals must last if packets and connections are both refused. A filter that refuses
/// one kind lets the other pass; filters that refuse both are rarer than killed processes, and
/// reload faster.
const BOTH_NS: u64 = 400_000_000;
/// Time that refusals of one kind must last if no other process of the host is reached. A firewall
/// that reloads refuses for up to three seconds; one more second is for queries that a kernel
/// repeats once a second. (Refusals and resets are soft errors, RFC 5461: only lasting ones count.)
const ONE_KIND_NS: u64 = 4_000_000_000;

impl Node {
    /// Notes that a local rail went down or came back (link state, socket error).
    pub fn on_rail(&mut self, now_ns: u64, rail: usize, down: bool) {
        self.take_deferred();
        if rail >= self.local.rails.len() || self.local.uptimes[rail].is_down() == down {
            return;
        }
        self.local.uptimes[rail].set(now_ns, down, self.cfg.neighbour_resolution_ns());
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                recovery.on_rail(now_ns, conn, rail, down);
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }

    /// Sets the local rails without room (bit n: rail n). No packets are built for them. Peers that
    /// wait for a rail that has room again are queued.
    #[inline]
    pub fn set_full(&mut self, rails: u32) {
        let back = self.local.full & !rails;
        self.local.full = rails;
        if back != 0 {
            self.run_queue.unpark(&mut self.directory);
        }
    }

    /// Parks all peers with packets to send, since no rail has room.
    #[cold]
    pub fn stall(&mut self) {
        self.run_queue.park(&mut self.directory);
    }

    /// Notes that a local rail has had no room for long: frames and acks of its paths leave on
    /// other paths where possible. `stuck`: for so long that its paths are given up where other
    /// paths work, and their packets in flight are requeued there.
    pub fn on_full(&mut self, now_ns: u64, rail: usize, stuck: bool) {
        self.take_deferred();
        if !self.cfg.reliable {
            return;
        }
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                recovery.on_full(now_ns, conn, rail, stuck);
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }

    /// Notes that packets of more than `max` bytes do not pass on this link of a local rail.
    /// Packets in flight are requeued in smaller pieces.
    pub fn on_too_big(&mut self, now_ns: u64, rail: usize, link: u32, max: usize) {
        self.take_deferred();
        for index in 0..self.directory.peers.len() {
            let peer = PeerId(index as u32);
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                for at in 0..conn.paths.len() {
                    let path = &mut conn.paths[at];
                    let ours = path.is_on(rail, link);
                    // A size probe that is too big says nothing about the packets in flight.
                    if ours && path.mtu.on_too_big(max, now_ns) {
                        recovery.requeue_in_flight(conn, at);
                    }
                }
            });
            self.put(conn);
            self.context().touch(peer, now_ns);
        }
    }

    /// Notes that the host at the other end of this link has no listener there, so the process may
    /// be gone. A firewall says the same, and so does another host with the peer's address
    /// (container bridges have the same address on every host). So only two kinds of paths count:
    /// paths that have worked, and paths to names of this host, each of which belongs to one
    /// process for ever. All of them must be refused.
    pub fn on_refused(&mut self, now_ns: u64, rail: usize, link: u32) {
        self.take_deferred();
        for (peer, at) in self.directory.paths_on(rail, link) {
            self.count_refusal(now_ns, peer, at, false);
        }
    }

    /// Counts a refused packet or `connection` on path `at`. Once all paths that have worked are
    /// refused, their standby paths must be refused as well: a filter may refuse one kind of rail
    /// and let the other pass.
    pub(crate) fn count_refusal(&mut self, now: u64, peer: PeerId, at: usize, connection: bool) {
        let hasty = self.cfg.errs(Mutation::BelieveRefusals);
        let heeds_standby = !hasty && !self.cfg.errs(Mutation::AskNoStandby);
        let counts = |c: &Conn| !c.session.is_over() && (hasty || c.tells_of_peer(at));
        if !self.conn(peer).is_some_and(counts) {
            return;
        }
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        let everywhere = conn.note_refusal(now, at) || hasty;
        conn.refusals.packets |= !connection;
        conn.refusals.connections |= connection;
        let parts = conn.bye.said > 0;
        // A peer that is gone needs no BYE of ours.
        conn.bye.heard |= everywhere && parts;
        if everywhere && !parts && heeds_standby {
            self.recover(&mut conn, |recovery, conn| recovery.standby(conn));
        }
        if everywhere {
            self.context().ask_siblings(now, &mut conn);
        }
        let everywhere = everywhere && (!heeds_standby || conn.is_refused_everywhere());
        let (evidence, least_ns) = conn.evidence(now, &self.cfg);
        let enough = conn.refusals.last(now, REFUSALS, least_ns);
        // Packets that the peer sent while this process was descheduled may still be unread.
        let gone = everywhere && enough && !self.descheduled.is_standby(now);
        self.put(conn);
        if gone {
            return self.tear_down(now, peer, Death::Refused(evidence));
        }
        self.context().wake(peer);
        self.context().touch(peer, now);
    }
}

impl Recovery<'_> {
    /// Handles a local rail of the connection that went down or came back.
    fn on_rail(&mut self, now: u64, conn: &mut Conn, rail: usize, down: bool) {
        for at in 0..conn.paths.len() {
            if conn.paths[at].local as usize != rail {
                continue;
            }
            if down && conn.paths[at].usable() {
                conn.begin_gap(at, true);
                self.path_down(now, conn, at, PathReason::RailDown);
            }
            // On a reliable rail, packets in flight were lost with the connection.
            if !down && !conn.paths[at].policy.lossy {
                self.requeue_in_flight(conn, at);
            }
            let path = &mut conn.paths[at];
            path.acks.renew_native(now);
            path.health.set_rail_down(down || !path.link.up);
            path.probing.set_due(now);
            path.pto.restart(now);
            path.probing
                .request_if(!path.rail_down() && conn.session.epoch.is_some());
            if down {
                conn.doubt_reachability(now);
            }
        }
        conn.note_cut(now, &self.local.uptimes);
        self.actions.mark_ready();
    }

    /// Handles that a local rail of the connection has had no room for long.
    fn on_full(&mut self, now: u64, conn: &mut Conn, rail: usize, stuck: bool) {
        for at in 0..conn.paths.len() {
            let path = &conn.paths[at];
            if path.local as usize != rail || !path.usable() || conn.session.is_over() {
                continue;
            }
            if stuck {
                self.path_down(now, conn, at, PathReason::NoRoom);
                continue;
            }
            let beside = |p: &Path| p.usable() && p.local != rail as u8;
            let others = conn.paths.iter().any(beside);
            let path = &mut conn.paths[at];
            if others && (path.ring.waiting() > 0 || path.acks.any()) {
                path.probing.request();
                self.actions.events(conn.suspect(at));
                conn.doubt_reachability(now);
            }
        }
        self.actions.mark_ready();
    }
}

impl Conn {
    /// The evidence in the refusals of a peer's paths, and how long they must last to prove that
    /// the peer is dead.
    fn evidence(&self, now: u64, cfg: &Config) -> (Evidence, u64) {
        let mut refused = self.paths.iter().filter(|p| p.health.is_refused());
        // (The other two mutations are not about time: the shortest time suits them.)
        let hasty = cfg.errs(Mutation::BelieveHiccups)
            || cfg.errs(Mutation::BelieveRefusals)
            || cfg.errs(Mutation::AskNoStandby);
        let one_kind_ns = match hasty {
            true => CERTAIN_NS,
            false => ONE_KIND_NS.min(cfg.silence_ns()),
        };
        let kinds = (self.refusals.connections, self.refusals.packets);
        match kinds {
            _ if refused.clone().any(|p| p.to.kind.is_near()) => (Evidence::NoSuchName, CERTAIN_NS),
            _ if refused.any(|p| p.link.ended) => (Evidence::Ended, CERTAIN_NS),
            (true, true) => (Evidence::Both, BOTH_NS),
            _ if self.refusals.are_of_one_process(now) => (Evidence::OneProcess, 0),
            (true, false) => (Evidence::Connections, one_kind_ns),
            (false, _) => (Evidence::Packets, one_kind_ns),
        }
    }

    /// True if a refusal on path `at` says something about the peer: the peer has answered on this
    /// path or on its preferred rail, which has the same address; or no other process can ever have
    /// had the address, as inside a host.
    fn tells_of_peer(&self, at: usize) -> bool {
        let Some(path) = self.paths.get(at) else {
            return false;
        };
        let before = |p: &Path| p.is_proven() && p.to.behind() == Some(path.to);
        path.is_proven() || path.to.kind.is_near() || self.paths.iter().any(before)
    }

    /// True if, since the peer was heard, every path whose refusal is about the peer was refused.
    fn is_refused_everywhere(&self) -> bool {
        let mut all = 0..self.paths.len();
        all.all(|at| self.paths[at].health.is_refused() || !self.tells_of_peer(at))
    }

    /// Probes all paths that have worked, except path `at` and paths where packets in flight serve
    /// as a probe.
    pub(crate) fn ask_beside(&mut self, at: usize) {
        for (other, path) in self.paths.iter_mut().enumerate() {
            path.probing
                .request_if(other != at && path.is_proven() && path.may_be_asked());
        }
    }

    /// Notes a refusal on path `at`. Returns true if every path that has worked was refused since
    /// the peer was heard. The other paths are probed, unless packets in flight serve as a probe.
    fn note_refusal(&mut self, now: u64, at: usize) -> bool {
        if self.refusals.note(now) {
            self.paths
                .iter_mut()
                .for_each(|p| p.health.forget_refusals());
        }
        let first = self.paths[at].health.on_refusal();
        let mut everywhere = true;
        for path in self
            .paths
            .iter_mut()
            .filter(|p| p.is_proven() && !p.health.is_refused())
        {
            everywhere = false;
            path.probing.request_if(first && path.may_be_asked());
        }
        everywhere
    }
}

impl Path {
    /// True if a probe is possible and no packet in flight serves as one.
    fn may_be_asked(&self) -> bool {
        !self.rail_down() && self.ring.waiting() == 0
    }
}
