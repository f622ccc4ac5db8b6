//! A network that forgets flows and connections, like a restarted firewall or address translator:
//! existing ones become black holes, new ones pass.

use crate::machine::connections::{End, Way};
use crate::machine::out::Out;
use crate::machine::place::{port_of, target_of};
use crate::setup::choices::Setup;
use crate::world::state::World;

impl Setup {
    /// Returns whether the links of a rail are stream connections, which are replaced when silent.
    pub(crate) fn renews(&self, rail: usize) -> bool {
        self.connects(rail) && !self.has_queue_pairs(rail) && self.near != Some(rail)
    }
}

impl World {
    /// Makes the network forget what passes a rail of a host. Queue pairs are unaffected: they pass
    /// no firewall that keeps state, and their datagrams have no other flow to take.
    pub(crate) fn forget(&mut self, at: (usize, usize)) {
        if self.setup.verbs[at.1].is_some() {
            return;
        }
        self.flows.forget(at);
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

    /// Returns whether datagrams of an endpoint leave by a forgotten flow.
    pub(crate) fn is_forgotten(&mut self, e: u32, out: &Out) -> bool {
        let target = target_of(&out.to);
        let start = (self.eps[e as usize].host, out.rail);
        let streams = self.setup.streams[start.1] && self.setup.streams[target.1];
        if streams || self.setup.connects(start.1) {
            return false;
        }
        let ports = (out.source_port, port_of(&out.to));
        self.flows.leave((e, (start, target), ports))
    }

    /// Replaces a connection that carries nothing by a new one, without notice to its users.
    pub(crate) fn replace(&mut self, e: u32, start: (usize, usize), target: (usize, usize)) {
        let (there, back) = ((start, target), (target, start));
        let stuck = &self.connections.stuck;
        let silent = self.is_stuck(e, start, target) || stuck.contains_key(&back);
        let cut = self.net.is_cut(start, target) || self.net.is_cut(target, start);
        if silent && !cut {
            self.net.stats.remade += 1;
            self.net.break_stream(start, target);
            self.connections.stuck.remove(&there);
            self.connections.stuck.remove(&back);
        }
    }
}
