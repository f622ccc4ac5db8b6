//! Recovery of a connection's paths: the parts of the node that it reads, and the actions that it
//! returns.
//!
//! Decisions about paths change the connection alone. All other effects (events, requests about
//! links, a place in the run queue) are actions, which [`Node::recover`] applies.

use crate::base::config::Config;
use crate::base::stats::NodeStats;
use crate::base::types::Event;
use crate::node::Node;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::descheduled::Descheduled;
use crate::state::local::Local;
use alloc::vec::Vec;
use marline_wire::RailAddr;

/// Decisions about the paths of one connection.
pub(crate) struct Recovery<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) local: &'a Local,
    pub(crate) outgoing: &'a Outgoing,
    /// Bytes granted to all peers that have not arrived yet.
    pub(crate) granted: u64,
    pub(crate) descheduled: &'a mut Descheduled,
    pub(crate) stats: &'a mut NodeStats,
    pub(crate) actions: Actions,
}

/// An action whose order among other actions matters.
#[derive(Debug)]
enum Action {
    Event(Event),
    /// Path `0` takes an ECMP flow that no path on its link has used.
    NewFlow(usize),
}

/// Effects of a decision outside of the connection.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    ready: bool,
    asks_links: bool,
    in_order: Vec<Action>,
    /// Links that no path uses any more: local rail, and the rail's number of the link.
    unused: Vec<(usize, u32)>,
    enters_hosts: bool,
    /// Addresses that paths had before.
    left: Vec<RailAddr>,
}

impl Actions {
    /// The connection has something to send.
    #[inline]
    pub(crate) fn mark_ready(&mut self) {
        self.ready = true;
    }

    /// The owner learns of a change.
    pub(crate) fn event(&mut self, event: Event) {
        self.in_order.push(Action::Event(event));
    }

    #[inline]
    pub(crate) fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        self.in_order.extend(events.into_iter().map(Action::Event));
    }

    /// Path `at` takes an ECMP flow that no path on its link has used.
    pub(crate) fn new_flow(&mut self, at: usize) {
        self.in_order.push(Action::NewFlow(at));
    }

    /// Some path of the connection has a request about its link.
    #[inline]
    pub(crate) fn ask_links(&mut self) {
        self.asks_links = true;
    }

    /// The connection has new paths or addresses.
    pub(crate) fn enter_hosts(&mut self) {
        self.enters_hosts = true;
    }

    /// A path had this address before.
    pub(crate) fn leave_host(&mut self, addr: RailAddr) {
        self.left.push(addr);
    }

    /// A link is no longer used.
    pub(crate) fn leave_link(&mut self, rail: usize, link: u32) {
        self.unused.push((rail, link));
    }
}

impl Node {
    /// Decides about paths of a connection, and applies the actions of the decision.
    #[inline]
    pub(crate) fn recover<T>(
        &mut self,
        conn: &mut Conn,
        decide: impl FnOnce(&mut Recovery<'_>, &mut Conn) -> T,
    ) -> T {
        let mut recovery = Recovery {
            cfg: &self.cfg,
            local: &self.local,
            outgoing: &self.outgoing,
            granted: self.incoming.grants().out(),
            descheduled: &mut self.descheduled,
            stats: &mut self.stats,
            actions: Actions::default(),
        };
        let decided = decide(&mut recovery, conn);
        let actions = recovery.actions;
        for action in actions.in_order {
            match action {
                Action::Event(event) => self.events.push_back(event),
                Action::NewFlow(at) => self.links.take_new_flow(&mut conn.paths[at], &self.cfg),
            }
        }
        self.links.unused.extend(actions.unused);
        let (hosts, pairing) = (&mut self.directory.hosts, self.local.pairing);
        if actions.enters_hosts {
            hosts.enter(pairing, conn);
        }
        for addr in actions.left {
            hosts.leave(pairing, conn, &addr);
        }
        if actions.asks_links {
            self.links.wanted.push(conn.peer);
        }
        if actions.ready {
            self.run_queue.mark_ready(conn);
        }
        decided
    }
}
