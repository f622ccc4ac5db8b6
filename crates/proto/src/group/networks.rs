//! The rails that carry a group's multicast: runs of chunks alternate among the rails with few
//! losses.

/// Most rails of a group.
pub const NETWORKS_MAX: usize = 8;
/// Chunks of a rail after which its counts are halved.
const MEMORY: u32 = 64;
/// Chunks needed to judge a rail.
const ENOUGH: u32 = 8;
/// One chunk in this many goes to a lossy rail, to detect that it recovered.
const TRIAL: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Network {
    sent: u32,
    /// Chunks requested again by a member.
    asked: u32,
}

/// Loss counts of a root's rails.
#[derive(Debug)]
pub(super) struct Networks {
    networks: [Network; NETWORKS_MAX],
    /// Bit mask of rails in use.
    mask: u8,
    turn: u64,
    /// Chunks sent on one rail before the next rail's turn.
    run: u32,
    /// The current rail, and its remaining chunks.
    current: (u8, u32),
}

impl Networks {
    /// `count` rails, all in use, with runs of `run` chunks each.
    pub fn new(count: u8, run: u32) -> Networks {
        let count = count.clamp(1, NETWORKS_MAX as u8) as u32;
        Networks {
            networks: [Network::default(); NETWORKS_MAX],
            mask: (u8::MAX) >> (NETWORKS_MAX as u32 - count),
            turn: 0,
            run: run.max(1),
            current: (NETWORKS_MAX as u8 - 1, 0),
        }
    }

    /// Restricts the rails to `mask`, unless none would remain.
    pub fn only(&mut self, mask: u8) {
        if self.mask & mask != 0 {
            self.mask &= mask;
        }
    }

    /// All rails in use.
    pub fn all(&self) -> impl Iterator<Item = u8> + '_ {
        (0..NETWORKS_MAX as u8).filter(|network| self.mask >> network & 1 == 1)
    }

    /// Returns whether the rail lost half of its chunks.
    fn is_bad(&self, network: u8) -> bool {
        let Network { sent, asked } = self.networks[network as usize];
        sent >= ENOUGH && asked * 2 >= sent
    }

    /// The rail for the next new chunk.
    pub fn next(&mut self) -> u8 {
        let (network, left) = self.current;
        let usable = |network: u8| self.mask >> network & 1 == 1 && !self.is_bad(network);
        let goes_on = left > 0 && usable(network);
        let turns = (1..=NETWORKS_MAX as u8).map(|n| (network + n) % NETWORKS_MAX as u8);
        let (next, left) = match turns.clone().find(|&network| usable(network)) {
            _ if goes_on => (network, left - 1),
            Some(next) => (next, self.run - 1),
            None => return self.pick(None),
        };
        self.current = (next, left);
        if self.turn % TRIAL == TRIAL - 1 && self.all().any(|network| self.is_bad(network)) {
            return self.pick(None);
        }
        self.turn += 1;
        next
    }

    /// The rail for a retransmission or for frames; avoids `last` if there is another rail.
    pub fn pick(&mut self, last: Option<u8>) -> u8 {
        self.turn += 1;
        let others = || self.all().filter(|network| Some(*network) != last);
        let nth = |turn: u64, count: usize| turn as usize % count.max(1);
        let good = others().filter(|network| !self.is_bad(*network)).count();
        if good > 0 && self.turn % TRIAL != 0 {
            let mut good_ones = others().filter(|network| !self.is_bad(*network));
            return good_ones.nth(nth(self.turn, good)).unwrap_or(0);
        }
        let any = others().nth(nth(self.turn / TRIAL + self.turn, others().count()));
        any.or(last).unwrap_or(0)
    }

    /// Counts a new chunk sent on a rail.
    pub fn sent(&mut self, network: u8) {
        if let Some(network) = self.networks.get_mut(network as usize) {
            network.sent += 1;
            if network.sent >= MEMORY {
                network.sent /= 2;
                network.asked /= 2;
            }
        }
    }

    /// Counts a loss: the first request for a chunk sent on that rail.
    pub fn lost(&mut self, network: u8) {
        if let Some(network) = self.networks.get_mut(network as usize) {
            network.asked += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_rail_that_loses_all_is_set_aside_and_tried() {
        let mut networks = Networks::new(2, 1);
        let mut counts = [0; 2];
        for n in 0..1_000 {
            let network = networks.next();
            networks.sent(network);
            if network == 1 && n < 500 {
                networks.lost(network);
            }
            counts[network as usize] += u32::from((100..500).contains(&n));
        }
        assert!((5..30).contains(&counts[1]), "{counts:?}");
        // The rail recovers, and is used again once this is known.
        for _ in 0..2_000 {
            let network = networks.next();
            networks.sent(network);
        }
        assert!(!networks.is_bad(1));
    }

    #[test]
    fn rails_take_turns_by_runs() {
        let mut networks = Networks::new(3, 4);
        let took: Vec<u8> = (0..14).map(|_| networks.next()).collect();
        assert_eq!(took, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0]);
        networks.only(0b110);
        assert_eq!((networks.next(), networks.next()), (1, 1));
    }

    #[test]
    fn a_repair_takes_another_rail_if_there_is_one() {
        let mut networks = Networks::new(3, 1);
        assert!((0..100).all(|_| networks.pick(Some(1)) != 1));
        networks.only(0b010);
        assert!((0..100).all(|_| networks.pick(Some(1)) == 1));
        networks.only(0b100);
        assert_eq!(networks.pick(None), 1);
        assert_eq!(Networks::new(0, 1).pick(Some(0)), 0);
    }
}
