//! A network that forgets what passes it, as firewalls and address translators do that restart: all
//! flows and connections of a rail become black holes, and new ones pass.
//!
//! A flow is known by its ends and by its source port, of which a rail has a new one for each flow
//! of its protocol that is newer than all before; every fifth leaves by the rail's own.

use crate::machine::connections::{End, Way};
use crate::machine::out::Out;
use crate::machine::place::target_of;
use crate::setup::choices::Setup;
use crate::world::state::World;
use std::collections::{BTreeMap, BTreeSet};

/// Every so many flows leave by the rail's own port.
const OWN_EVERY: u8 = 5;

/// A flow of datagrams: of an endpoint, between two rails, by its source port (0: the rail's own).
type Flow = (u32, Way, u32);

/// The flows of a world.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// Of an endpoint, between two rails: the newest flow, and its port.
    newest: BTreeMap<(u32, Way), (u8, u32)>,
    seen: BTreeSet<Flow>,
    forgotten: BTreeSet<Flow>,
}

impl Flows {
    /// Datagrams leave by a flow; whether it is forgotten.
    fn leave(&mut self, e: u32, way: Way, flow: u8) -> bool {
        let (newest, port) = self.newest.entry((e, way)).or_default();
        if (flow.wrapping_sub(*newest) as i8) > 0 {
            (*newest, *port) = (flow, *port + 1);
        }
        let own = flow % OWN_EVERY == 0;
        let flow = (e, way, if own { 0 } else { *port });
        self.seen.insert(flow);
        self.forgotten.contains(&flow)
    }

    /// All that were seen at a rail are forgotten.
    fn forget(&mut self, at: (usize, usize)) {
        let of = |flow: &&Flow| flow.1 .0 == at || flow.1 .1 == at;
        self.forgotten.extend(self.seen.iter().filter(of));
    }
}

impl Setup {
    /// Returns whether the links of a rail are connections of streams, which are made anew where
    /// they are silent.
    pub(crate) fn renews(&self, rail: usize) -> bool {
        self.connects(rail) && !self.has_queue_pairs(rail) && self.near != Some(rail)
    }
}

impl World {
    /// The network forgets what passes a rail of a host.
    pub(crate) fn forget(&mut self, at: (usize, usize)) {
        self.connections.flows.forget(at);
        if !self.setup.renews(at.1) {
            return;
        }
        let ways = self.connections.up.keys().map(|end: &End| {
            let here = (self.eps[end.0 as usize].host, end.1);
            (end.0, (here, end.2))
        });
        let of = |(_, (from, to)): &(u32, Way)| *from == at || *to == at;
        for (e, way) in ways.filter(of).collect::<Vec<_>>() {
            let breaks = self.breaks(e, way.0, way.1);
            self.connections.stuck.insert(way, breaks);
            self.net.stats.stuck += 1;
        }
    }

    /// Returns whether datagrams of an endpoint leave by a flow that is forgotten.
    pub(crate) fn is_forgotten(&mut self, e: u32, out: &Out) -> bool {
        let target = target_of(&out.to);
        let start = (self.eps[e as usize].host, out.rail);
        let streams = self.setup.streams[start.1] && self.setup.streams[target.1];
        if streams || self.setup.connects(start.1) {
            return false;
        }
        self.connections.flows.leave(e, (start, target), out.flow)
    }

    /// An end of a connection that carries nothing makes another in its place, of which its users
    /// hear nothing.
    pub(crate) fn replace(&mut self, e: u32, start: (usize, usize), target: (usize, usize)) {
        let (there, back) = ((start, target), (target, start));
        let stuck = &self.connections.stuck;
        let silent = self.is_stuck(e, start, target) || stuck.contains_key(&back);
        let cut = self.net.is_cut(start, target) || self.net.is_cut(target, start);
        if silent && !cut {
            self.net.stats.remade += 1;
            self.net.sever(start, target);
            self.connections.stuck.remove(&there);
            self.connections.stuck.remove(&back);
        }
    }
}
