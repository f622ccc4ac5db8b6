//! Rails of InfiniBand: reliable connections (RC), unreliable ones (UC), and datagrams (UD).
//!
//! The links of all three are made by dialling and break. RC is a stream that writes: nothing is
//! lost until it breaks. UC loses packets and writes one by one, and nobody is told. UD loses
//! packets and does not write. When a connection breaks
//!
//! - its ends need not hear of it together: one may go on sending into nothing until it hears, or
//!   until the other dials anew;
//! - what was being written lands late, in part, or not at all, although the writer has been told
//!   that its memory is free;
//! - all that was posted to it is over at once (it is flushed).

use crate::machine::connections::{End, BROKEN};
use crate::machine::place::Place;
use crate::network::hurt::Hurt;
use crate::setup::choices::{Fault, Setup, Topology, Trouble};
use crate::world::state::{Next, World};
use marline_rails::RemoteWrites;
use marline_wire::RailAddr;

/// The other end of a connection hears at most so much later that it is down.
const HEARS_LATE_NS: [u64; 3] = [100_000, 3_000_000, 30_000_000];

impl World {
    /// How long after a connection broke one of its ends hears of that; 0: at once.
    pub(crate) fn hears_late(&mut self, rail: usize) -> u64 {
        if !self.setup.has_queue_pairs(rail) || self.rng.one_in(2) {
            return 0;
        }
        let most = self.rng.pick(&HEARS_LATE_NS);
        1 + self.rng.below(most)
    }

    /// An end whose connection is down hears of it later.
    pub(crate) fn hear_later(&mut self, end: End, to: RailAddr, ns: u64) {
        let order = self.push(self.now + ns, Next::Dialled);
        self.connections.deaf.insert(end, (order, to));
    }

    /// An end that had not heard of it is told now that its connection is down.
    pub(crate) fn hear(&mut self, end: &End) {
        if let Some((_, to)) = self.connections.deaf.remove(end) {
            self.tell_link(end.0, end.1, to, Some(BROKEN));
        }
    }

    /// All that one end of a connection has posted is over, as the connection is.
    pub(crate) fn flush_writes(&mut self, (e, rail, target, _): End) {
        let of = |over: &(u32, usize, u64, (usize, usize))| (over.0, over.1, over.3);
        let mine = (self.overs.iter()).filter(|(_, over)| of(over) == (e, rail, target));
        let orders: Vec<u64> = mine.map(|(order, _)| *order).collect();
        for order in orders {
            if let Some((e, rail, token, _)) = self.overs.remove(&order) {
                self.write_over(e, rail, token);
            }
        }
    }

    /// The part that lands of a write whose connection has broken meanwhile; `None`: nothing.
    pub(crate) fn lands_broken(&mut self, rail: usize, len: usize, hurt: Hurt) -> Option<Hurt> {
        if !self.setup.connects(rail) {
            return None;
        }
        match self.rng.below(3) {
            0 => None,
            1 => Some(Hurt::Upto(self.rng.below(len as u64 + 1) as usize)),
            _ => Some(hurt),
        }
    }
}

impl Setup {
    /// Where a rail of a host is reached.
    pub(crate) fn place(&self, host: usize, rail: usize, port: u16) -> Place {
        Place {
            host,
            paired: self.paired,
            rail,
            port,
            prefix_len: match self.topology {
                Topology::Planes => 16,
                Topology::Mesh => 8,
                Topology::Routed => 32,
            },
            near: self.near == Some(rail),
            behind: self.behind == Some(rail),
            backed: self.behind == Some(rail + 1),
            datagram_max: self.datagram_max[rail],
            writes: self.kind_of_writes(rail),
        }
    }

    /// Returns whether a rail knows what has landed: those whose writes are in order do, as TCP and
    /// shared memory, unless they lie.
    pub(crate) fn knows_landed(&self, rail: usize) -> bool {
        let lies = |fault: &Fault| matches!(fault.what, Trouble::Lies { .. });
        let ordered = self.kind_of_writes(rail) == RemoteWrites::Ordered && !self.is_uc(rail);
        ordered && !self.faults.iter().any(lies)
    }

    /// The kind of writes that a rail announces.
    pub(crate) fn kind_of_writes(&self, rail: usize) -> RemoteWrites {
        match (self.writes[rail], self.streams[rail] || self.is_uc(rail)) {
            (false, false) if self.direct => RemoteWrites::Direct,
            (false, _) => RemoteWrites::None,
            (true, false) => RemoteWrites::Unordered,
            (true, true) => RemoteWrites::Ordered,
        }
    }
}
