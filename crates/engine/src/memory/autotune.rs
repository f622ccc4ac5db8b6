//! Which of two ways of doing the same costs less here and now: both are tried a few times by a
//! stopwatch, then the cheaper one is kept for long.

/// Measured of each way. One that was interrupted costs many times as much, and odd numbers have
/// a middle that this does not move.
const TRIES: usize = 15;
/// Done the cheaper way before both are tried again: what else runs on a machine changes. A way
/// that costs twice as much is then felt by 1.5 %.
const KEPT: u32 = 64 * TRIES as u32;

/// Two ways, and what they cost.
pub(crate) struct Autotune {
    /// Of the second way and of the first.
    costs: [[u64; TRIES]; 2],
    measured: [usize; 2],
    /// The first way is cheaper.
    first: bool,
    /// Still to be done the cheaper way.
    left: u32,
}

impl Autotune {
    pub(crate) fn new() -> Autotune {
        Autotune {
            costs: [[0; TRIES]; 2],
            measured: [0; 2],
            first: true,
            left: 0,
        }
    }

    /// The first way is to be taken this time; its cost is wanted.
    pub(crate) fn next(&mut self) -> (bool, bool) {
        if self.left > 0 {
            self.left -= 1;
            return (self.first, false);
        }
        // Each in one stretch: what is in the caches depends on what was done before.
        (self.measured[1] < TRIES, true)
    }

    /// Notes the cost of one way this time, in any unit.
    pub(crate) fn cost(&mut self, first: bool, cost: u64) {
        let way = first as usize;
        if self.measured[way] == TRIES {
            return; // more than was asked for
        }
        self.costs[way][self.measured[way]] = cost;
        self.measured[way] += 1;
        if self.measured == [TRIES; 2] {
            let middle = |costs: &mut [u64; TRIES]| *costs.select_nth_unstable(TRIES / 2).1;
            let [second, first] = self.costs.each_mut().map(middle);
            (self.first, self.left) = (first <= second, KEPT);
            self.measured = [0; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that the first way was taken, of a trial and what follows it.
    fn play(trial: &mut Autotune, mut cost: impl FnMut(bool, usize) -> u64) -> u32 {
        let mut taken = 0;
        for n in 0..2 * TRIES + KEPT as usize {
            let (first, wanted) = trial.next();
            taken += first as u32;
            if wanted {
                trial.cost(first, cost(first, n));
            }
        }
        taken
    }

    #[test]
    fn the_cheaper_way_is_kept_and_the_other_tried_again() {
        let mut trial = Autotune::new();
        let all = TRIES as u32 + KEPT;
        assert_eq!(play(&mut trial, |first, _| 5 + first as u64), TRIES as u32);
        assert_eq!(play(&mut trial, |first, _| 5 - first as u64), all);
        assert_eq!(play(&mut trial, |_, _| 5), all, "equal");
    }

    #[test]
    fn interruptions_do_not_count() {
        let mut trial = Autotune::new();
        let cost = |first, n| {
            if first && n % 3 == 0 {
                1_000
            } else {
                5 + !first as u64
            }
        };
        assert_eq!(play(&mut trial, cost), TRIES as u32 + KEPT);
    }

    #[test]
    fn more_costs_than_asked_for_change_nothing() {
        let mut trial = Autotune::new();
        for _ in 0..2 * TRIES {
            trial.cost(true, 5);
        }
        assert_eq!(trial.next(), (false, true), "now the other way");
    }
}
