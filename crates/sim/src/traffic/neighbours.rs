//! Neighbour discovery of kernels. A host that loses its carrier forgets its neighbours' link
//! addresses. A request without carrier fails and is repeated only after a pause; until then
//! nothing leaves for the neighbour, unless the neighbour announces itself, as rails do when they
//! come back or when their peers are silent.

use crate::machine::connections::Way;
use crate::network::asking::Neighbour;
use crate::setup::choices::Setup;
use crate::world::state::{Next, World};

/// Announcements of a rail that comes back, the first at once, with doubling pauses.
const TIMES: u32 = 7;
const PAUSE_NS: u64 = 10_000_000;

impl Setup {
    /// Returns whether the rail has neighbour discovery.
    fn has_neighbours(&self, rail: usize) -> bool {
        self.neighbour_resolution_ns > 0 && self.near != Some(rail) && !self.has_queue_pairs(rail)
    }
}

impl World {
    /// Makes a rail lose its carrier, or get it back.
    pub(crate) fn carrier(&mut self, (host, rail): (usize, usize), goes: bool) {
        if !self.setup.has_neighbours(rail) {
            return;
        }
        if !goes {
            for time in 0..TIMES {
                let at = self.now + PAUSE_NS * ((1 << time) - 1);
                self.meet_later(at, Neighbour::Tells(host, rail));
            }
            return;
        }
        // A process may have sent something in the meantime.
        for to in (0..self.setup.hosts).filter(|&to| to != host) {
            if self.net.rng.one_in(2) {
                let way = ((host, rail), (to, rail));
                self.net.unknown.insert(way);
                self.meet_later(
                    self.now + self.setup.neighbour_resolution_ns,
                    Neighbour::Asks(way),
                );
            }
        }
    }

    fn meet_later(&mut self, at: u64, due: Neighbour) {
        let order = self.push(at, Next::Dialled);
        self.neighbours.insert(order, due);
    }

    /// Processes an event of neighbour discovery; `false` for other events.
    pub(crate) fn meet_neighbours(&mut self, order: u64) -> bool {
        let due = self.neighbours.remove(&order);
        match due {
            Some(Neighbour::Tells(host, rail)) => self.tell_neighbours((host, rail)),
            Some(Neighbour::Asks(way)) => self.ask_neighbour(way),
            None => return false,
        }
        true
    }

    fn ask_neighbour(&mut self, way: Way) {
        if !self.net.unknown.contains(&way) {
            return;
        }
        let (from, to) = way;
        self.net.unknown.remove(&way);
        // The request is a broadcast, its answer is addressed to the requester.
        if self.net.is_cut(from, to) || self.net.is_cut(to, from) {
            self.net.unknown.insert(way);
            self.meet_later(
                self.now + self.setup.neighbour_resolution_ns,
                Neighbour::Asks(way),
            );
        }
    }

    /// A rail announces its address: hosts that wait for it learn it.
    pub(crate) fn tell_neighbours(&mut self, at: (usize, usize)) {
        let asking = self.net.unknown.iter().filter(|way| way.1 == at);
        for way in asking.copied().collect::<Vec<Way>>() {
            let back = (at, way.0);
            let was = self.net.unknown.remove(&back);
            if !self.net.is_cut(at, way.0) {
                self.net.unknown.remove(&way);
                self.net.stats.announced += 1;
            }
            if was {
                self.net.unknown.insert(back);
            }
        }
    }
}
