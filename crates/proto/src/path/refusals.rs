//! Refusals by a host without a listener, of datagrams and connections alike: which count, and when
//! they prove that the peer's process is gone.

use crate::base::config::Config;
use crate::base::evidence::Evidence;
use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
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
    /// Notes that the host at the other end of this link has no listener there, so the process may
    /// be gone. A firewall says the same, and so does another host with the peer's address
    /// (container bridges have the same address on every host). So only two kinds of paths count:
    /// paths that have worked, and paths to names of this host, each of which belongs to one
    /// process for ever. All of them must be refused.
    pub fn on_refused(&mut self, now_ns: u64, rail: usize, link: u32) {
        self.take_deferred();
        for (peer, at) in self.paths_on(rail, link) {
            self.count_refusal(now_ns, peer, at, false);
        }
    }

    /// Counts a refused packet or `connection` on path `at`. Once all paths that have worked are
    /// refused, their standby paths must be refused as well: a filter may refuse one kind of rail
    /// and let the other pass.
    pub(crate) fn count_refusal(&mut self, now: u64, peer: PeerId, at: usize, connection: bool) {
        let hasty = self.cfg.errs(Mutation::BelieveRefusals);
        let heeds_standby = !hasty && !self.cfg.errs(Mutation::AskNoStandby);
        let counts = |c: &Conn| !c.session.is_over() && (hasty || c.refusal_counts(at));
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
        let gone = everywhere && enough && !self.descheduled.is_catching_up(now);
        self.put(conn);
        if gone {
            return self.tear_down(now, peer, Death::Refused(evidence));
        }
        self.context().wake(peer);
        self.context().touch(peer, now);
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
    fn refusal_counts(&self, at: usize) -> bool {
        let Some(path) = self.paths.get(at) else {
            return false;
        };
        let before = |p: &Path| p.is_proven() && p.to.behind() == Some(path.to);
        path.is_proven() || path.to.kind.is_near() || self.paths.iter().any(before)
    }

    /// True if, since the peer was heard, every path whose refusal is about the peer was refused.
    fn is_refused_everywhere(&self) -> bool {
        let mut all = 0..self.paths.len();
        all.all(|at| self.paths[at].health.is_refused() || !self.refusal_counts(at))
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
