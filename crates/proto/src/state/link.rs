//! State of a path's link.

use crate::base::types::PeerId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Delay before asking again for a link that went down: the first and the longest, doubled in
/// between. A peer that restarts its rail listens again within milliseconds; asking a dead one
/// should cost next to nothing.
const RETRY_MIN_NS: u32 = 1_000_000;
const RETRY_MAX_NS: u32 = 500_000_000;
/// Least interval between notices to the rail that a link works. Hosts revalidate a neighbour's ARP
/// entry after a second at the soonest.
const WORKS_EVERY_NS: u64 = 100_000_000;

/// Write backoff: after failed writes a path skips up to two to this power of them.
const FAILURES_MAX: u8 = 7;

/// Unit of times stored in 32 bits.
const UNIT_NS: u64 = 1 << 20;

/// Requests about links for the engine.
#[derive(Debug, Default)]
pub struct Links {
    /// Peers that have paths with a request about their link.
    pub wanted: Vec<PeerId>,
    /// Links of local rails to be closed.
    pub unused: Vec<(usize, u32)>,
    /// By local rail and number of a link: the newest flow that a path on it took. One link may
    /// lead to several peers, for example a dead process and its successor at the same address.
    pub flows: BTreeMap<(u8, u32), u8>,
    users: LinkUsers,
}

/// Peers by the links of their paths: local rail, number of the link, peer. Peers that have left a
/// link stay until there are twice as many entries as after the last sweep.
#[derive(Debug, Default)]
struct LinkUsers {
    all: BTreeSet<(u8, u32, u32)>,
    sweep_at: usize,
}

/// Entries before the first sweep.
const UNSWEPT_MAX: usize = 64;

impl Links {
    /// Notes that a path of the peer uses a link. `uses` tells whether an earlier entry holds.
    pub(crate) fn enter(
        &mut self,
        (rail, link, peer): (u8, u32, PeerId),
        uses: impl Fn(usize, u32, PeerId) -> bool,
    ) {
        let users = &mut self.users;
        users.all.insert((rail, link, peer.0));
        if users.all.len() > users.sweep_at.max(UNSWEPT_MAX) {
            let holds =
                |&(rail, link, peer): &(u8, u32, u32)| uses(rail as usize, link, PeerId(peer));
            users.all.retain(holds);
            users.sweep_at = 2 * users.all.len();
        }
    }

    /// Peers that use a link, or did, in order.
    pub(crate) fn users(&self, rail: usize, link: u32) -> Vec<PeerId> {
        let Ok(rail) = u8::try_from(rail) else {
            return Vec::new();
        };
        let entries = self
            .users
            .all
            .range((rail, link, 0)..=(rail, link, u32::MAX));
        entries.map(|&(_, _, peer)| PeerId(peer)).collect()
    }
}

/// Backoff of writes on a link after failures.
#[derive(Clone, Copy, Debug, Default)]
struct WriteBackoff {
    failures: u8,
    skips: u8,
}

/// A path's link.
#[derive(Clone, Copy, Debug)]
pub struct PathLink {
    /// Number of the link on the local rail.
    pub id: Option<u32>,
    /// Packets may leave.
    pub up: bool,
    /// A request for a link must go to the engine.
    pub wanted: bool,
    /// A connection ended after all data that the peer had sent, without a notice of idle eviction,
    /// and nothing was heard on the path since.
    pub ended: bool,
    /// The rail must be told that packets arrive (`reported_at`: when it last was).
    pub works: bool,
    /// The rail must be told that nothing is acknowledged.
    pub silent: bool,
    /// The rail must try another route, since nothing is acknowledged.
    pub reroute: bool,
    /// ECMP entropy of outgoing packets: on connectionless rails each value selects a source port;
    /// values wrap.
    pub flow: u8,
    writes: WriteBackoff,
    reported_at: u32,
    /// When the link last went down after it was up; 0: never. Unit as above: [`UNIT_NS`].
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
            flow: 0,
            writes: WriteBackoff::default(),
            reported_at: 0,
            fell: 0,
            retry_at: 0,
            retry_ns: RETRY_MIN_NS,
        }
    }

    /// The peer's rail has a new address, which needs a new link. The state of writes stays: they
    /// may fail there for the same reasons.
    pub fn on_new_address(&mut self) {
        *self = PathLink {
            writes: self.writes,
            ..PathLink::new(false)
        };
    }

    /// Handles the loss of a written fragment: increases the write backoff.
    pub fn on_write_failed(&mut self) {
        self.writes.failures = (self.writes.failures + 1).min(FAILURES_MAX);
        self.writes.skips = 1 << self.writes.failures;
    }

    /// Handles the ack of a written fragment: resets the write backoff.
    pub fn on_write_acked(&mut self) {
        self.writes = WriteBackoff::default();
    }

    /// True if the next fragment may be written.
    pub fn may_write(&self) -> bool {
        self.writes.skips == 0
    }

    /// Returns whether the next fragment may be written, and counts down the write backoff.
    pub fn write_turn(&mut self) -> bool {
        let may = self.may_write();
        self.writes.skips = self.writes.skips.saturating_sub(1);
        may
    }

    /// When to ask for another link, if this one is down.
    pub fn retry_at(&self) -> Option<u64> {
        let lost = self.id.is_none() && !self.wanted && !self.up;
        lost.then_some(self.retry_at)
    }

    /// Notes a packet that arrived on the link. Returns true if the rail must be told now.
    #[inline]
    pub fn note_arrival(&mut self, now: u64) -> bool {
        if self.works || self.id.is_none() || since(self.reported_at, now) < WORKS_EVERY_NS {
            return false;
        }
        (self.works, self.reported_at) = (true, units(now));
        true
    }

    /// True if the link is up, or was up within that time.
    pub fn was_up(&self, now: u64, within_ns: u64) -> bool {
        self.up || (self.fell > 0 && since(self.fell, now) <= within_ns)
    }

    /// Notes that the link carries packets now.
    pub fn bring_up(&mut self) {
        (self.up, self.retry_ns) = (true, RETRY_MIN_NS);
    }

    /// Notes that the link is down; another one is due after a delay. Returns true if this is the
    /// first failure since the link was up, or since the path was made.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_write_doubles_the_writes_that_are_skipped() {
        let mut link = PathLink::new(false);
        assert!(link.may_write() && link.write_turn());
        for failures in 1..=FAILURES_MAX + 2 {
            link.on_write_failed();
            link.on_new_address();
            let skips = 1 << failures.min(FAILURES_MAX);
            assert_eq!((0..).take_while(|_| !link.write_turn()).count(), skips);
        }
        link.on_write_acked();
        link.on_write_failed();
        assert_eq!((0..).take_while(|_| !link.write_turn()).count(), 2);
    }

    #[test]
    fn a_link_that_fails_again_is_asked_for_later_each_time() {
        let mut link = PathLink::new(true);
        link.bring_up();
        (link.id, link.wanted) = (Some(1), false);
        assert!(link.fall(0));
        assert_eq!(link.retry_at(), Some(u64::from(RETRY_MIN_NS)));
        assert!(!link.fall(0));
        assert_eq!(link.retry_at(), Some(2 * u64::from(RETRY_MIN_NS)));
        assert!(link.was_up(UNIT_NS, 2 * UNIT_NS) && !link.was_up(9 * UNIT_NS, UNIT_NS));
    }
}
