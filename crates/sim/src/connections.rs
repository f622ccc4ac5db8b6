//! Rails whose links are connections: made by dialling, in order, and lossless until they break.
//! All that is under way is lost then, the ends that know of the connection are told, and dial
//! again. (TCP and RC repeat what a network loses, and break where it carries nothing.)

use crate::machine::News;
use crate::setup::{Setup, Topology};
use crate::world::{Next, World};
use crate::writes::{port_of, target_of};
use marline_wire::RailAddr;
use std::collections::BTreeMap;

/// One end's connection: endpoint and rail, rail and port at the other end.
type End = (u32, usize, (usize, usize), u16);

/// The connections of a world.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Those that carry packets.
    up: BTreeMap<End, RailAddr>,
    /// Those that are being made, by the order of the event that decides.
    dials: BTreeMap<u64, (u32, usize, RailAddr)>,
}

impl Setup {
    /// Returns whether links of a rail are connections. (Rails that write are streams of another
    /// kind, and in a mesh streams meet datagrams.)
    pub fn connects(&self, rail: usize) -> bool {
        let stream = |of: &[bool]| of.get(rail) == Some(&true);
        let alone = self.topology == Topology::Planes && !stream(&self.writes);
        alone && stream(&self.streams) && stream(&self.connected)
    }
}

fn end_of(e: u32, rail: usize, to: &RailAddr) -> End {
    (e, rail, target_of(to), port_of(to))
}

impl World {
    /// An endpoint asks for a connection; a round trip later it is decided.
    pub(crate) fn dial(&mut self, e: u32, rail: usize, to: RailAddr) {
        let at = self.now + 2 * self.net.latency(rail);
        let order = self.push(at, Next::Dialled);
        self.connections.dials.insert(order, (e, rail, to));
    }

    pub(crate) fn dialled(&mut self, order: u64) {
        let Some((e, rail, to)) = self.connections.dials.remove(&order) else {
            return;
        };
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(&to));
        let listens =
            |ep: &crate::endpoint::Endpoint| ep.alive && !ep.closed && ep.port == port_of(&to);
        let there = self.on_host.get(target.0).copied().flatten();
        let there = there.is_some_and(|other| listens(&self.eps[other as usize]));
        let cut = || self.net.is_cut(start, target) || self.net.is_cut(target, start);
        let up = there && self.setup.connects(target.1) && !cut();
        if up {
            self.connections.up.insert(end_of(e, rail, &to), to);
        }
        self.tell_link(e, rail, to, up);
    }

    /// Returns whether a packet gets onto its connection. Where the network carries nothing the
    /// connection breaks, and so it does now and then.
    pub(crate) fn boards(&mut self, e: u32, rail: usize, to: &RailAddr) -> bool {
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(to));
        let up = self.connections.up.contains_key(&end_of(e, rail, to));
        if up && (self.net.is_cut(start, target) || self.net.snaps()) {
            self.net.sever(start, target);
            self.break_where(|from, to| {
                (from, to) == (start, target) || (to, from) == (start, target)
            });
            return false;
        }
        up
    }

    /// All connections of a rail break.
    pub(crate) fn break_rail(&mut self, host: usize, rail: usize) {
        self.break_where(|from, to| from == (host, rail) || to == (host, rail));
    }

    /// What arrived on a connection finds nobody any more.
    pub(crate) fn hang_up(&mut self, start: (usize, usize), target: (usize, usize)) {
        if self.setup.connects(target.1) {
            self.break_where(|from, to| (from, to) == (start, target));
        }
    }

    /// All connections of a host's process, which died, end.
    pub(crate) fn break_host(&mut self, host: usize) {
        let of = |at: (usize, usize)| at.0 == host;
        for rail in 0..self.setup.rails {
            for other in 0..self.setup.hosts {
                if self.setup.connects(rail) {
                    self.net.sever((host, rail), (other, rail));
                }
            }
        }
        self.break_where(|from, to| of(from) || of(to));
    }

    fn break_where(&mut self, broken: impl Fn((usize, usize), (usize, usize)) -> bool) {
        let of = |end: &End| broken((self.eps[end.0 as usize].host, end.1), end.2);
        let ends = self.connections.up.iter().filter(|(end, _)| of(end));
        let ends: Vec<(End, RailAddr)> = ends.map(|(end, to)| (*end, *to)).collect();
        for (end, to) in ends {
            self.connections.up.remove(&end);
            self.tell_link(end.0, end.1, to, false);
        }
    }

    fn tell_link(&mut self, e: u32, rail: usize, to: RailAddr, up: bool) {
        let ep = &self.eps[e as usize];
        if !ep.alive {
            return;
        }
        let mut wires = ep.machine.wires();
        ep.machine.tell(&mut wires, rail, News::Link(to, up));
        drop(wires);
        self.wake(e, self.now);
    }
}
