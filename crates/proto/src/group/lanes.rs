//! The rails that carry a group's multicast: runs of chunks alternate among the rails with few
//! losses.

/// Most rails of a group.
pub const LANES_MAX: usize = 8;
/// Chunks of a rail after which its counts are halved.
const MEMORY: u32 = 64;
/// Chunks needed to judge a rail.
const ENOUGH: u32 = 8;
/// One chunk in this many goes to a lossy rail, to detect that it recovered.
const TRIAL: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    sent: u32,
    /// Chunks requested again by a member.
    asked: u32,
}

/// Loss counts of a root's rails.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: [Lane; LANES_MAX],
    /// Bit mask of rails in use.
    mask: u8,
    turn: u64,
    /// Chunks sent on one rail before the next rail's turn.
    run: u32,
    /// The current rail, and its remaining chunks.
    current: (u8, u32),
}

impl Lanes {
    /// `count` rails, all in use, with runs of `run` chunks each.
    pub fn new(count: u8, run: u32) -> Lanes {
        let count = count.clamp(1, LANES_MAX as u8) as u32;
        Lanes {
            lanes: [Lane::default(); LANES_MAX],
            mask: (u8::MAX) >> (LANES_MAX as u32 - count),
            turn: 0,
            run: run.max(1),
            current: (LANES_MAX as u8 - 1, 0),
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
        (0..LANES_MAX as u8).filter(|lane| self.mask >> lane & 1 == 1)
    }

    /// Returns whether the rail lost half of its chunks.
    fn is_bad(&self, lane: u8) -> bool {
        let Lane { sent, asked } = self.lanes[lane as usize];
        sent >= ENOUGH && asked * 2 >= sent
    }

    /// The rail for the next new chunk.
    pub fn next(&mut self) -> u8 {
        let (lane, left) = self.current;
        let usable = |lane: u8| self.mask >> lane & 1 == 1 && !self.is_bad(lane);
        let goes_on = left > 0 && usable(lane);
        let turns = (1..=LANES_MAX as u8).map(|n| (lane + n) % LANES_MAX as u8);
        let (next, left) = match turns.clone().find(|&lane| usable(lane)) {
            _ if goes_on => (lane, left - 1),
            Some(next) => (next, self.run - 1),
            None => return self.pick(None),
        };
        self.current = (next, left);
        if self.turn % TRIAL == TRIAL - 1 && self.all().any(|lane| self.is_bad(lane)) {
            return self.pick(None);
        }
        self.turn += 1;
        next
    }

    /// The rail for a retransmission or for words; avoids `last` if there is another.
    pub fn pick(&mut self, last: Option<u8>) -> u8 {
        self.turn += 1;
        let others = || self.all().filter(|lane| Some(*lane) != last);
        let nth = |turn: u64, count: usize| turn as usize % count.max(1);
        let good = others().filter(|lane| !self.is_bad(*lane)).count();
        if good > 0 && self.turn % TRIAL != 0 {
            let mut good_ones = others().filter(|lane| !self.is_bad(*lane));
            return good_ones.nth(nth(self.turn, good)).unwrap_or(0);
        }
        let any = others().nth(nth(self.turn / TRIAL + self.turn, others().count()));
        any.or(last).unwrap_or(0)
    }

    /// Counts a new chunk sent on a rail.
    pub fn sent(&mut self, lane: u8) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.sent += 1;
            if lane.sent >= MEMORY {
                lane.sent /= 2;
                lane.asked /= 2;
            }
        }
    }

    /// Counts a loss: the first request for a chunk sent on that rail.
    pub fn lost(&mut self, lane: u8) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.asked += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_rail_that_loses_all_is_set_aside_and_tried() {
        let mut lanes = Lanes::new(2, 1);
        let mut counts = [0; 2];
        for n in 0..1_000 {
            let lane = lanes.next();
            lanes.sent(lane);
            if lane == 1 && n < 500 {
                lanes.lost(lane);
            }
            counts[lane as usize] += u32::from((100..500).contains(&n));
        }
        assert!((5..30).contains(&counts[1]), "{counts:?}");
        // The rail recovers, and is used again once this is known.
        for _ in 0..2_000 {
            let lane = lanes.next();
            lanes.sent(lane);
        }
        assert!(!lanes.is_bad(1));
    }

    #[test]
    fn rails_take_turns_by_runs() {
        let mut lanes = Lanes::new(3, 4);
        let took: Vec<u8> = (0..14).map(|_| lanes.next()).collect();
        assert_eq!(took, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0]);
        lanes.only(0b110);
        assert_eq!((lanes.next(), lanes.next()), (1, 1));
    }

    #[test]
    fn a_repair_takes_another_rail_if_there_is_one() {
        let mut lanes = Lanes::new(3, 1);
        assert!((0..100).all(|_| lanes.pick(Some(1)) != 1));
        lanes.only(0b010);
        assert!((0..100).all(|_| lanes.pick(Some(1)) == 1));
        lanes.only(0b100);
        assert_eq!(lanes.pick(None), 1);
        assert_eq!(Lanes::new(0, 1).pick(Some(0)), 0);
    }
}
