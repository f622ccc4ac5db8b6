//! State of a path's link.

use crate::base::types::PeerId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Delay before the link is asked for again after it went down: first and longest, doubling in
/// between. A peer that restarts its rail listens again within milliseconds; a dead one should cost
/// next to nothing.
const RETRY_MIN_NS: u32 = 1_000_000;
const RETRY_MAX_NS: u32 = 500_000_000;
/// Least interval between notices to the rail that a link works. Hosts revalidate a neighbour's ARP
/// entry after a second at the soonest.
const WORKS_EVERY_NS: u64 = 100_000_000;

/// Unit of times stored in 32 bits.
const UNIT_NS: u64 = 1 << 20;

/// Requests about links for the engine.
#[derive(Debug, Default)]
pub struct Links {
    /// Peers with paths that have a request.
    pub wanted: Vec<PeerId>,
    /// Links of local rails to be closed.
    pub unused: Vec<(usize, u32)>,
    /// By local rail and number of a link: the newest flow that a path on it took. Several peers
    /// may be behind one link, a dead process and the one that listens in its place among them.
    pub flows: BTreeMap<(u8, u32), u8>,
}

/// A path's link.
#[derive(Clone, Copy, Debug)]
pub struct PathLink {
    /// Number of the link on the local rail.
    pub id: Option<u32>,
    /// Packets may leave.
    pub up: bool,
    /// The engine is to be asked for a link.
    pub wanted: bool,
    /// A connection ended after all data that the peer had sent, without a notice of idle
    /// eviction, and nothing was heard on the path since.
    pub ended: bool,
    /// The rail is to be told that packets arrive (`told`: when it last was).
    pub works: bool,
    /// The rail is to be told that nothing is acknowledged.
    pub silent: bool,
    /// The rail is to try another route, as nothing is acknowledged.
    pub reroute: bool,
    told: u32,
    /// When the link last went down after it was up; 0: never. Like `told` in units of [`UNIT_NS`].
    fell: u32,
    /// When to ask for the link again, and the next delay.
    retry_at: u64,
    retry_ns: u32,
}

impl PathLink {
    /// The link of a new path, not opened yet. `connected`: the rail has connections.
    pub fn new(connected: bool) -> PathLink {
        PathLink {
            id: None,
            up: !connected,
            wanted: true,
            ended: false,
            works: false,
            silent: false,
            reroute: false,
            told: 0,
            fell: 0,
            retry_at: 0,
            retry_ns: RETRY_MIN_NS,
        }
    }

    /// When to ask for another link, if this one is down.
    pub fn retry_at(&self) -> Option<u64> {
        let lost = self.id.is_none() && !self.wanted && !self.up;
        lost.then_some(self.retry_at)
    }

    /// Notes a packet that arrived on the link; returns true if the rail is to be told now.
    #[inline]
    pub fn note_arrival(&mut self, now: u64) -> bool {
        if self.works || self.id.is_none() || since(self.told, now) < WORKS_EVERY_NS {
            return false;
        }
        (self.works, self.told) = (true, units(now));
        true
    }

    /// True if the link is up, or was within that time.
    pub fn was_up(&self, now: u64, within_ns: u64) -> bool {
        self.up || (self.fell > 0 && since(self.fell, now) <= within_ns)
    }

    /// Notes that the link carries packets now.
    pub fn rise(&mut self) {
        (self.up, self.retry_ns) = (true, RETRY_MIN_NS);
    }

    /// Notes that the link is down; another is due some time after `now`. Returns true if this is
    /// the first failure since the link was up, or since the path was made.
    pub fn fall(&mut self, now: u64) -> bool {
        if self.up {
            self.fell = units(now).max(1);
        }
        (self.id, self.up) = (None, false);
        let first = self.retry_ns == RETRY_MIN_NS;
        self.retry_at = now + u64::from(self.retry_ns);
        self.retry_ns = (2 * self.retry_ns).min(RETRY_MAX_NS);
        first
    }
}

fn units(now: u64) -> u32 {
    (now / UNIT_NS) as u32
}

/// Nanoseconds since a time in units.
fn since(then: u32, now: u64) -> u64 {
    u64::from(units(now).wrapping_sub(then)) * UNIT_NS
}
