//! Establishing and breaking connections of simulated rails.

use crate::machine::connections::{End, BROKEN, ENDED};
use crate::machine::out::News;
use crate::machine::place::{port_of, target_of};
use crate::setup::choices::{Fault, Trouble};
use crate::world::endpoint::Endpoint;
use crate::world::state::{Next, World};
use marline_rails::DownReason;
use marline_wire::RailAddr;

pub(crate) fn end_of(e: u32, rail: usize, to: &RailAddr) -> End {
    (e, rail, target_of(to), port_of(to))
}

impl World {
    /// An endpoint requests a connection; the result is known a round trip later.
    pub(crate) fn dial(&mut self, e: u32, rail: usize, to: RailAddr) {
        let at = self.now + 2 * self.net.latency(rail);
        let order = self.push(at, Next::Dialled);
        self.connections.dials.insert(order, (e, rail, to));
    }

    pub(crate) fn dialled(&mut self, order: u64) {
        if let Some((start, target)) = self.connections.resets.remove(&order) {
            self.connections.silent.remove(&(start, target));
            return self.break_connection(start, target);
        }
        if self.meet_neighbours(order) || self.step_of_eviction(order) || self.step_of_read(order) {
            return;
        }
        let unreadable = self
            .connections
            .unreadable
            .iter()
            .find(|(_, at)| at.0 == order);
        if let Some(end) = unreadable.map(|(end, _)| *end) {
            return self.hear(&end);
        }
        let Some((e, rail, to)) = self.connections.dials.remove(&order) else {
            return;
        };
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(&to));
        let listens = |ep: &Endpoint| ep.alive && !ep.closed && ep.listens(target.1, port_of(&to));
        let there = self.on_host.get(target.0).copied().flatten();
        let there = there.is_some_and(|other| listens(&self.eps[other as usize]));
        let cut = self.net.is_cut(start, target) || self.net.is_cut(target, start);
        // Queue pairs cannot refuse a connection request.
        let hosts = !self.setup.has_queue_pairs(rail) && self.setup.connects(target.1);
        // Inside a host there is no firewall.
        let wall = hosts && !to.kind.is_near() && self.net.refuses(target);
        let gone = !there && self.setup.refuses && !self.has_left(target, port_of(&to));
        let down = match there && self.setup.connects(target.1) && !cut && !wall {
            true => None,
            false if hosts && !cut && (wall || gone) => Some(DownReason::Refused),
            false => Some(DownReason::Unanswered),
        };
        self.net.stats.refused += u64::from(down == Some(DownReason::Refused));
        if down.is_none() {
            if self.setup.behind == Some(rail) {
                *self.troubles.entry("standby carries").or_default() += 1;
            }
            self.net.stats.connected += 1;
            self.connections.up.insert(end_of(e, rail, &to), to);
            self.begin_light(start, target);
            // A new connection ends an older one that the other end still considers established.
            let other = self.connections.unreadable.keys().copied();
            let other: Vec<End> = other
                .filter(|end| {
                    end.2 == start && end.1 == target.1 && self.eps[end.0 as usize].host == target.0
                })
                .collect();
            other.iter().for_each(|end| self.hear(end));
        }
        self.tell_link(e, rail, to, down);
    }

    /// Time at which a packet given to its connection at `at` leaves; `None` if there is no
    /// connection. While the network carries nothing the packet waits; if that lasts too long the
    /// connection breaks. Now and then a connection breaks without a visible reason.
    pub(crate) fn departure_time(
        &mut self,
        e: u32,
        rail: usize,
        to: &RailAddr,
        at: u64,
    ) -> Option<u64> {
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(to));
        if !self.connections.up.contains_key(&end_of(e, rail, to)) {
            return None;
        }
        if self.net.breaks_connection() {
            self.break_connection(start, target);
            return None;
        }
        // Datagrams and unreliable connections lose packets as the network does.
        if !self.net.is_stream(start.1, target.1) || !self.net.is_cut(start, target) {
            return Some(at);
        }
        if let Some(heals) = self.heals_at(start, target) {
            return Some(at.max(heals + 1));
        }
        if self.setup.silent_ns == 0 {
            self.break_connection(start, target);
        } else if self.connections.silent.insert((start, target)) {
            let order = self.push(self.now + self.setup.silent_ns, Next::Dialled);
            self.connections.resets.insert(order, (start, target));
        }
        None
    }

    /// The time until which a connection holds data given to it now, if the network carries nothing
    /// and recovers before the connection breaks.
    pub(crate) fn held_until(
        &self,
        rail: usize,
        from: (usize, usize),
        to: (usize, usize),
    ) -> Option<u64> {
        let stream = self.setup.connects(rail) && self.net.is_stream(from.1, to.1);
        let cut = stream && self.net.is_cut(from, to);
        cut.then(|| self.heals_at(from, to)).flatten()
    }

    /// The time at which the network recovers, if connections survive until then.
    fn heals_at(&self, from: (usize, usize), to: (usize, usize)) -> Option<u64> {
        let (mut at, until) = (self.now, self.now + self.setup.silent_ns);
        while at < until {
            let cuts = |f: &&Fault| f.from_ns <= at && at <= f.to_ns && f.what.cuts(from, to);
            match self.setup.faults.iter().filter(cuts).map(|f| f.to_ns).max() {
                Some(end) => at = end + 1,
                None => return Some(at),
            }
        }
        None
    }

    /// Breaks the connections between two rails.
    pub(crate) fn break_connection(&mut self, start: (usize, usize), target: (usize, usize)) {
        self.net.break_stream(start, target);
        let between = |from, to| (from, to) == (start, target) || (to, from) == (start, target);
        self.break_where(BROKEN, between);
    }

    /// Starts or ends a trouble of the network; all connections of a failing rail break.
    pub(crate) fn trouble(&mut self, what: &Trouble, starts: bool) {
        self.net.trouble(what, starts);
        if let Trouble::Forget { host, rail } = *what {
            if starts {
                self.forget((host, rail));
            }
        }
        if let Trouble::Move { host, rail, to } = *what {
            self.send_elsewhere((host, rail), to, starts);
        }
        if let Trouble::RailDown {
            host,
            rail,
            notified: true,
        } = *what
        {
            self.carrier((host, rail), starts);
        }
        if let Trouble::RailDown { host, rail, .. } | Trouble::Move { host, rail, .. } = *what {
            self.break_where(BROKEN, |from, to| {
                from == (host, rail) || to == (host, rail)
            });
        }
        // A firewall resets connections as well.
        if let Trouble::Refuse { host, rail } = *what {
            let resets = starts && self.setup.connects(rail) && !self.setup.has_queue_pairs(rail);
            for other in (0..self.setup.hosts).filter(|_| resets) {
                self.break_connection((host, rail), (other, rail));
            }
        }
    }

    /// A packet arrived on a connection at a dead process: the connection breaks.
    pub(crate) fn hang_up(&mut self, start: (usize, usize), target: (usize, usize)) {
        if self.setup.connects(target.1) {
            self.break_where(BROKEN, |from, to| (from, to) == (start, target));
        }
    }

    /// Ends all connections of a host's process, which died.
    pub(crate) fn break_host(&mut self, host: usize) {
        let of = |at: (usize, usize)| at.0 == host;
        for rail in 0..self.setup.rails {
            for other in 0..self.setup.hosts {
                if self.setup.connects(rail) {
                    self.net.break_stream((host, rail), (other, rail));
                }
            }
        }
        self.break_where(ENDED, |from, to| of(from) || of(to));
    }

    fn break_where(
        &mut self,
        why: DownReason,
        broken: impl Fn((usize, usize), (usize, usize)) -> bool,
    ) {
        self.break_evicted(&broken);
        let of = |end: &End| broken((self.eps[end.0 as usize].host, end.1), end.2);
        let ends = self.connections.up.iter().filter(|(end, _)| of(end));
        let ends: Vec<(End, RailAddr)> = ends.map(|(end, to)| (*end, *to)).collect();
        for (end, to) in ends {
            self.connections.up.remove(&end);
            self.flush_writes(end);
            self.flush_reads(end);
            match self.hears_late(end.1) {
                0 => self.tell_link(end.0, end.1, to, Some(why)),
                ns => self.hear_later(end, to, ns),
            }
        }
    }

    /// Tells an endpoint that a connection is up, or why it is down.
    pub(crate) fn tell_link(
        &mut self,
        e: u32,
        rail: usize,
        to: RailAddr,
        down: Option<DownReason>,
    ) {
        let ep = &self.eps[e as usize];
        if !ep.alive {
            return;
        }
        let mut wires = ep.machine.wires();
        ep.machine
            .queue_event(&mut wires, rail, News::Link(to, down));
        drop(wires);
        self.wake(e, self.now);
    }
}
