//! InfiniBand rails: reliable connections (RC), unreliable ones (UC), and datagrams (UD).
//!
//! Links of all three kinds are established by dialling, and break. RC is a stream with writes:
//! lossless until it breaks. UC loses packets and writes individually, without notification. UD
//! loses packets and has no writes. When a connection breaks:
//!
//! - its ends may learn of it at different times: one may continue sending without effect until it
//!   learns, or until the other one dials again;
//! - writes in flight land late, partially, or not at all, although the writer was told that its
//!   memory is free;
//! - all posted work is over at once (flushed).

use crate::machine::connections::{End, BROKEN};
use crate::machine::place::Place;
use crate::network::hurt::WriteDamage;
use crate::setup::choices::{Fault, Setup, Topology, Trouble};
use crate::world::state::{Next, World};
use marline_rails::RemoteWrites;
use marline_wire::RailAddr;

/// Longest delays after which the other end learns that a connection is down.
const HEARS_LATE_NS: [u64; 3] = [100_000, 3_000_000, 30_000_000];

impl World {
    /// The delay until one end of a broken connection learns of it; 0: at once.
    pub(crate) fn hears_late(&mut self, rail: usize) -> u64 {
        if !self.setup.has_queue_pairs(rail) || self.rng.one_in(2) {
            return 0;
        }
        let most = self.rng.pick(&HEARS_LATE_NS);
        1 + self.rng.below(most)
    }

    /// Schedules the notification of an end whose connection is down.
    pub(crate) fn hear_later(&mut self, end: End, to: RailAddr, ns: u64) {
        let order = self.push(self.now + ns, Next::Dialled);
        self.connections.unreadable.insert(end, (order, to));
    }

    /// Notifies an end that its connection is down.
    pub(crate) fn hear(&mut self, end: &End) {
        if let Some((_, to)) = self.connections.unreadable.remove(end) {
            self.tell_link(end.0, end.1, to, Some(BROKEN));
        }
    }

    /// Ends all work that one end of a broken connection has posted.
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

    /// The part of a write that lands after its connection broke; `None`: no part.
    pub(crate) fn lands_broken(
        &mut self,
        rail: usize,
        len: usize,
        hurt: WriteDamage,
    ) -> Option<WriteDamage> {
        if !self.setup.connects(rail) {
            return None;
        }
        match self.rng.below(3) {
            0 => None,
            1 => Some(WriteDamage::Upto(self.rng.below(len as u64 + 1) as usize)),
            _ => Some(hurt),
        }
    }
}

impl Setup {
    /// The address of a host's rail.
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

    /// Returns whether a rail knows which writes have landed: rails with ordered writes do, such as
    /// TCP and shared memory, unless they report falsely.
    pub(crate) fn knows_landed(&self, rail: usize) -> bool {
        let lies = |fault: &Fault| matches!(fault.what, Trouble::Lies { .. });
        let ordered = self.kind_of_writes(rail) == RemoteWrites::Ordered && !self.is_uc(rail);
        ordered && !self.faults.iter().any(lies)
    }

    /// The kind of remote writes that a rail announces.
    pub(crate) fn kind_of_writes(&self, rail: usize) -> RemoteWrites {
        match (self.writes[rail], self.streams[rail] || self.is_uc(rail)) {
            (false, false) if self.direct => RemoteWrites::Direct,
            (false, _) => RemoteWrites::None,
            (true, false) => RemoteWrites::Unordered,
            (true, true) => RemoteWrites::Ordered,
        }
    }
}
