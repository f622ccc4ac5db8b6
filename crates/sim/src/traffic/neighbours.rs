//! Neighbours that kernels ask for once a second. With its carrier a host forgets the addresses of
//! its neighbours' cards. Without one it asks in vain, and again so much later: until then nothing
//! leaves for the neighbour, unless something comes from there that says where it is, as when a
//! rail comes back, or tells that because its peers are silent.

use crate::machine::connections::Way;
use crate::network::asking::Neighbour;
use crate::setup::choices::Setup;
use crate::world::state::{Next, World};

/// A rail that comes back tells its neighbours so often, from at once on, each time after twice as
/// long as before.
const TIMES: u32 = 7;
const PAUSE_NS: u64 = 10_000_000;

impl Setup {
    /// Returns whether the neighbours of a rail are asked for.
    fn has_neighbours(&self, rail: usize) -> bool {
        self.asks_ns > 0 && self.near != Some(rail) && !self.has_queue_pairs(rail)
    }
}

impl World {
    /// The carrier of a rail is gone, or is back.
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
        // Some process may have sent something after that.
        for to in (0..self.setup.hosts).filter(|&to| to != host) {
            if self.net.rng.one_in(2) {
                let way = ((host, rail), (to, rail));
                self.net.unknown.insert(way);
                self.meet_later(self.now + self.setup.asks_ns, Neighbour::Asks(way));
            }
        }
    }

    fn meet_later(&mut self, at: u64, due: Neighbour) {
        let order = self.push(at, Next::Dialled);
        self.neighbours.insert(order, due);
    }

    /// Does the part of an event that is about neighbours; `false`: it is another's.
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
        // The question is heard by everyone, and its answer is for the one who asks.
        if self.net.is_cut(from, to) || self.net.is_cut(to, from) {
            self.net.unknown.insert(way);
            self.meet_later(self.now + self.setup.asks_ns, Neighbour::Asks(way));
        }
    }

    /// A rail tells its neighbours where it is: those who ask for it know that now.
    pub(crate) fn tell_neighbours(&mut self, at: (usize, usize)) {
        let asking = self.net.unknown.iter().filter(|way| way.1 == at);
        for way in asking.copied().collect::<Vec<Way>>() {
            let back = (at, way.0);
            let was = self.net.unknown.remove(&back);
            if !self.net.is_cut(at, way.0) {
                self.net.unknown.remove(&way);
                self.net.stats.told += 1;
            }
            if was {
                self.net.unknown.insert(back);
            }
        }
    }
}
