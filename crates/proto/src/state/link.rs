//! The state of a path's link.

use crate::base::types::PeerId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// After a link went down, another is asked for this much later: at first, and at most, doubling
/// in between. A peer that restarts its rail listens again within milliseconds; one that does not
/// should cost next to nothing.
const RETRY_MIN_NS: u32 = 1_000_000;
const RETRY_MAX_NS: u32 = 500_000_000;
/// The rail of a link that works is told so this often at most. Hosts ask for the address of a
/// neighbour's card again after a second at the soonest.
const WORKS_EVERY_NS: u64 = 100_000_000;

/// Unit of times that are kept in few bits.
const UNIT_NS: u64 = 1 << 20;

/// Questions about links that the engine is to be asked.
#[derive(Debug, Default)]
pub struct Links {
    /// Peers with paths that want one.
    pub wanted: Vec<PeerId>,
    /// Links of local rails that are not used any more.
    pub unused: Vec<(usize, u32)>,
    /// By local rail and number of a link: the newest flow that a path on it took. Several peers
    /// may be behind one link, a dead process and the one that listens in its place among them.
    pub flows: BTreeMap<(u8, u32), u8>,
}

/// A path's link.
#[derive(Clone, Copy, Debug)]
pub struct PathLink {
    /// Its number on the local rail.
    pub id: Option<u32>,
    /// Packets may leave.
    pub up: bool,
    /// The engine is to be asked for one.
    pub wanted: bool,
    /// A connection ended with all that the peer had sent, without a word of the peer's rail
    /// before, and nothing was heard on the path since.
    pub ended: bool,
    /// Its rail is to be told that packets arrive, and when it was last.
    pub works: bool,
    /// Its rail is to be told that nothing is acknowledged.
    pub silent: bool,
    /// Its rail is to try another way, as nothing is acknowledged.
    pub reroute: bool,
    told: u32,
    /// When it went down after it was up, the last time; 0: never. As `told` in units of
    /// [`UNIT_NS`].
    fell: u32,
    /// When it is asked for again, and how much later the next time.
    retry_at: u64,
    retry_ns: u32,
}

impl PathLink {
    /// The link of a new path, which no rail has made yet. `connected`: of a rail with connections.
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

    /// When another is to be asked for, if it is down.
    pub fn retry_at(&self) -> Option<u64> {
        let lost = self.id.is_none() && !self.wanted && !self.up;
        lost.then_some(self.retry_at)
    }

    /// A packet on it arrived. Returns whether its rail is to be told so now.
    #[inline]
    pub fn note_arrival(&mut self, now: u64) -> bool {
        if self.works || self.id.is_none() || since(self.told, now) < WORKS_EVERY_NS {
            return false;
        }
        (self.works, self.told) = (true, units(now));
        true
    }

    /// Returns whether it is up, or was so within that time.
    pub fn was_up(&self, now: u64, within_ns: u64) -> bool {
        self.up || (self.fell > 0 && since(self.fell, now) <= within_ns)
    }

    /// It carries packets from now on.
    pub fn rise(&mut self) {
        (self.up, self.retry_ns) = (true, RETRY_MIN_NS);
    }

    /// It is down; another is wanted some time after `now`. Returns whether this is the first time
    /// since it was up, or since it was wanted at all.
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
