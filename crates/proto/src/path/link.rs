//! Links of paths: connections between two rails, which the engine opens and closes.
//!
//! The node asks for a link ([`Node::poll_link`]) when it makes a path. The engine answers with the
//! number that the rail gave the link ([`Node::on_linked`]); packets of the path carry this number.
//! Paths of connectionless rails send at once, whatever the state of their link; paths of rails
//! with connections send nothing before the link is up. When a link goes down, the path's packets
//! in flight are requeued to other paths, and another link is asked for, at growing intervals.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::link::Links;
use crate::state::local::Local;
use crate::state::path::Path;
use crate::state::uptime::Uptime;
use alloc::vec::Vec;
use marline_wire::RailAddr;

/// A request of the node to the engine about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAsk {
    /// A path needs a link: answer with [`Node::on_linked`].
    Open {
        /// Peer of the path.
        peer: PeerId,
        /// Index of the path.
        path: usize,
        /// Local rail.
        rail: usize,
        /// Address of the peer's rail.
        to: RailAddr,
    },
    /// Packets of the path arrive on its link: the engine reports that to the rail.
    Works {
        /// Local rail.
        rail: usize,
        /// The rail's number of the link.
        link: u32,
    },
    /// Packets of the path remain unacknowledged again and again: the engine tells the rail.
    Silent {
        /// Local rail.
        rail: usize,
        /// The rail's number of the link.
        link: u32,
    },
    /// The path is silent: the rail may choose another ECMP route. If the rail does, the engine
    /// calls [`Node::on_rerouted`].
    Reroute {
        /// Local rail.
        rail: usize,
        /// The rail's number of the link.
        link: u32,
    },
    /// The path no longer uses this link.
    Close {
        /// Local rail.
        rail: usize,
        /// The rail's number of the link.
        link: u32,
    },
}

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The connection was refused: the host at the other end has no listener there (see
    /// [`Node::on_refused`]).
    Refused,
    /// The connection ended after all data that the peer had sent, as when a process ends.
    Closed,
    /// The connection broke or got no answer.
    Broken,
}

impl Recovery<'_> {
    /// Asks for another link of a path that lost its link, if its retry time has come.
    pub(crate) fn relink(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let link = &mut conn.paths[at].link;
        if link.retry_at().is_some_and(|due| due <= now) {
            link.wanted = true;
            self.actions.ask_links();
        }
    }

    /// Tells the rail that a path which has worked is silent.
    pub(crate) fn report_silent(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        if path.is_proven() && !path.rail_down() {
            path.link.silent = true;
            self.actions.ask_links();
        }
    }

    /// Tries another route to the peer's rail. Packets from another source port may take other
    /// switches and NICs. A connection is replaced by a new one, since some connections that lost
    /// packets carry nothing afterwards. (Not on a native path, which would lose its packets in
    /// flight for good.)
    pub(crate) fn reroute(&mut self, conn: &mut Conn, at: usize) {
        self.actions.new_flow(at);
        let path = &mut conn.paths[at];
        let policy = &path.policy;
        if !policy.lossy || !policy.unordered && !policy.native {
            path.link.reroute = true;
            self.actions.ask_links();
        }
    }

    /// Asks for the links of a connection's new paths.
    pub(crate) fn ask_links_of(&mut self, conn: &mut Conn) {
        if conn.open_links(self.local, self.descheduled.last_poll_ns) {
            self.actions.ask_links();
        }
        self.actions.enter_hosts();
    }
}

impl Conn {
    /// Notes which links of new paths are up and which rails are down. Returns whether links must
    /// be asked for.
    fn open_links(&mut self, local: &Local, now: u64) -> bool {
        let (connected, uptimes) = (&local.rails, &local.uptimes);
        let mut wanted = false;
        for path in &mut self.paths {
            let rail = path.local as usize;
            if path.link.id.is_none() && path.link.wanted {
                path.link.up = !connected.get(rail).is_some_and(|r| r.connected);
                wanted = true;
            }
            path.health
                .set_rail_down(uptimes[rail].is_down() || !path.link.up);
        }
        self.note_cut(now, uptimes);
        wanted
    }
}

impl Links {
    /// Gives a path an ECMP flow that no path on its link has used. (The rail changes the source
    /// port only for a flow newer than all others on the link.)
    pub(crate) fn take_new_flow(&mut self, path: &mut Path, cfg: &Config) {
        let alone = cfg.errs(Mutation::CountFlowsAlone);
        let Some(link) = path.link.id.filter(|_| !alone) else {
            path.link.flow = path.link.flow.wrapping_add(1);
            return;
        };
        let newest = self
            .flows
            .entry((path.local, link))
            .or_insert(path.link.flow);
        *newest = newest.wrapping_add(1);
        path.link.flow = *newest;
    }

    /// Releases the links of a closed connection.
    pub(crate) fn leave(&mut self, conn: &Conn) {
        let used = conn
            .paths
            .iter()
            .filter_map(|p| Some((p.local, p.link.id?)));
        self.unused
            .extend(used.map(|(rail, link)| (rail as usize, link)));
    }
}

impl Node {
    /// True if [`Node::poll_link`] has a request.
    #[inline]
    pub fn asks_links(&self) -> bool {
        !self.links.wanted.is_empty() || !self.links.unused.is_empty()
    }

    /// Returns the next request about a link. Call until `None` before packets are built.
    pub fn poll_link(&mut self) -> Option<LinkAsk> {
        if let Some((rail, link)) = self.links.unused.pop() {
            return Some(LinkAsk::Close { rail, link });
        }
        let leaves = self.cfg.errs(Mutation::LeaveStuck);
        let hides = self.cfg.errs(Mutation::HideSilence);
        while let Some(&peer) = self.links.wanted.last() {
            let paths = self.conn_mut(peer).map(|conn| conn.paths.iter_mut());
            let asks = |p: &Path| {
                let link = &p.link;
                link.wanted || link.works || link.silent || link.reroute
            };
            let wanting = paths.and_then(|mut p| p.position(|p| asks(p)));
            let Some((path, conn)) = wanting.zip(self.conn_mut(peer)) else {
                self.links.wanted.pop();
                continue;
            };
            let found = &mut conn.paths[path];
            let (rail, to) = (found.local as usize, found.to);
            let works = core::mem::take(&mut found.link.works);
            if let Some(link) = found.link.id.filter(|_| works) {
                return Some(LinkAsk::Works { rail, link });
            }
            let silent = core::mem::take(&mut found.link.silent);
            if let Some(link) = found.link.id.filter(|_| silent && !hides) {
                return Some(LinkAsk::Silent { rail, link });
            }
            let reroute = core::mem::take(&mut found.link.reroute);
            if let Some(link) = found.link.id.filter(|_| reroute && !leaves) {
                return Some(LinkAsk::Reroute { rail, link });
            }
            if !core::mem::take(&mut found.link.wanted) {
                continue;
            }
            return Some(LinkAsk::Open {
                peer,
                path,
                rail,
                to,
            });
        }
        None
    }

    /// Sets the link of a path, in answer to [`LinkAsk::Open`]. `up`: the link already carries
    /// packets.
    pub fn on_linked(&mut self, now_ns: u64, peer: PeerId, path: usize, link: u32, up: bool) {
        let Some(found) = self.conn_mut(peer).and_then(|c| c.paths.get_mut(path)) else {
            return;
        };
        found.link.id = Some(link);
        let (rail, comes_up) = (found.local, up && !found.link.up);
        let directory = &self.directory;
        let uses = |rail, link, peer| {
            let conn: Option<&Conn> = directory.conn(peer);
            conn.is_some_and(|c| c.paths.iter().any(|p| p.is_on(rail, link)))
        };
        self.links.enter((rail, link, peer), uses);
        if comes_up {
            self.on_link_up(now_ns, rail as usize, link);
        }
    }

    /// The paths of a link, each by its peer and its index there.
    pub(crate) fn paths_on(&mut self, rail: usize, link: u32) -> Vec<(PeerId, usize)> {
        let users = self.links.users(rail, link);
        self.stats.visited += users.len() as u64;
        let on_link = |peer| {
            let mut paths = self.conn(peer)?.paths.iter();
            Some((peer, paths.position(|p| p.is_on(rail, link))?))
        };
        users.into_iter().filter_map(on_link).collect()
    }

    /// Notes that a rail chose another route for a link, in answer to [`LinkAsk::Reroute`].
    pub fn on_rerouted(&mut self, now_ns: u64, rail: usize, link: u32) {
        self.of_link(now_ns, rail, link, |recovery, conn, at| {
            // If another path carries packets, a new route of a down path is part of probing, not
            // an event.
            if conn.paths[at].usable() || !conn.carries_beside(at, recovery.cfg) {
                recovery.actions.event(conn.path_rerouted(at));
            }
        });
    }

    /// A new connection replaced a silent one. `of`: the largest segments of the old connection and
    /// of the new.
    pub fn on_segments(&mut self, now_ns: u64, rail: usize, link: u32, of: (usize, usize)) {
        self.of_link(now_ns, rail, link, |recovery, conn, at| {
            let event = conn.path_shrank(at, of, PathReason::Unanswered);
            recovery.actions.event(event);
        });
    }

    /// Notes that a link carries packets now.
    pub fn on_link_up(&mut self, now_ns: u64, rail: usize, link: u32) {
        let rail_down = self.local.uptimes.get(rail).is_some_and(Uptime::is_down);
        self.of_link(now_ns, rail, link, |_, conn, at| {
            let path = &mut conn.paths[at];
            path.link.bring_up();
            path.health.set_rail_down(rail_down);
            path.probing.set_due(now_ns);
            path.pto.restart(now_ns);
            path.probing
                .request_if(!rail_down && conn.session.epoch.is_some());
        });
    }

    /// Notes that a link is down for good, and why. Packets in flight on its paths are requeued to
    /// other paths, if there are any. The end of a connection alone is no evidence of a dead peer:
    /// hosts evict idle connections, and devices between them break some. It is a reason to probe
    /// the peer's other rails, on which nothing may be in flight. `word`: the owner's code of the
    /// cause, which is reported with paths that are given up.
    pub fn on_link_down(&mut self, now_ns: u64, rail: usize, link: u32, how: LinkEnd, word: u32) {
        self.take_deferred();
        let believes = self.cfg.errs(Mutation::BelieveResets);
        let refused = match how == LinkEnd::Refused || believes {
            true => self.paths_on(rail, link),
            false => Vec::new(),
        };
        self.of_link(now_ns, rail, link, |recovery, conn, at| {
            // After BYE the peer closes its links: no path failed.
            let over = conn.session.is_over() || recovery.local.closing;
            if conn.paths[at].usable() && !over {
                conn.begin_gap(at, true);
                recovery.path_down(now_ns, conn, at, PathReason::LinkDown(word));
            }
            // Packets in flight are lost with the connection, also on the last path, which is not
            // given up.
            recovery.requeue_in_flight(conn, at);
            recovery.actions.leave_link(rail, link);
            let path = &mut conn.paths[at];
            path.acks.renew_native(now_ns);
            path.health.set_rail_down(true);
            let first = path.link.fall(now_ns);
            path.link.ended |= how == LinkEnd::Closed || believes;
            conn.begin_waiting(now_ns);
            if first && !over {
                conn.ask_beside(at);
            }
        });
        for (peer, at) in refused {
            self.count_refusal(now_ns, peer, at, true);
        }
    }

    /// Calls `act` for each path of a link.
    fn of_link(
        &mut self,
        now: u64,
        rail: usize,
        link: u32,
        mut act: impl FnMut(&mut Recovery<'_>, &mut Conn, usize),
    ) {
        for (peer, _) in self.paths_on(rail, link) {
            let Some(mut conn) = self.take(peer) else {
                continue;
            };
            self.recover(&mut conn, |recovery, conn| {
                for at in 0..conn.paths.len() {
                    if conn.paths[at].is_on(rail, link) {
                        act(recovery, conn, at);
                    }
                }
                recovery.actions.mark_ready();
            });
            self.put(conn);
            self.context().touch(peer, now);
        }
    }

    /// Takes all links of a node that is closed, for the engine to close.
    pub fn take_links(&mut self) -> impl Iterator<Item = (usize, u32)> {
        for index in 0..self.directory.peers.len() {
            if let Some(mut conn) = self.take(PeerId(index as u32)) {
                self.links.leave(&conn);
                conn.paths.iter_mut().for_each(|p| p.link.id = None);
                self.put(conn);
            }
        }
        core::mem::take(&mut self.links.unused).into_iter()
    }
}

impl Context<'_> {
    /// Asks for the links of a peer's new paths.
    pub(crate) fn ask_links(&mut self, peer: PeerId) {
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        if conn.open_links(self.local, self.descheduled.last_poll_ns) {
            self.links.wanted.push(peer);
        }
        self.directory.enter_hosts(self.local, peer);
    }
}
