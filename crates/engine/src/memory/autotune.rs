//! Chooses the cheaper of two methods: times both a few times, then uses the cheaper one for a
//! while.

/// Timings per method, an odd number. Their median is the method's cost: an interrupted run, which
/// takes many times as long, does not move it.
const TRIES: usize = 15;
/// Runs of the cheaper method before both are timed again, since the other load on the machine
/// changes. If the other method costs twice as much, the timings add 1.5 %.
const KEPT: u32 = 64 * TRIES as u32;

/// Two methods, and the measured cost of each.
pub(crate) struct Autotune {
    /// Costs of the second method and of the first.
    costs: [[u64; TRIES]; 2],
    measured: [usize; 2],
    /// True if the first method is cheaper.
    first: bool,
    /// Remaining runs of the cheaper method.
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

    /// Returns whether to use the first method this time, and whether to time it.
    pub(crate) fn next(&mut self) -> (bool, bool) {
        if self.left > 0 {
            self.left -= 1;
            return (self.first, false);
        }
        // Timings of one method follow each other directly: caches depend on earlier runs.
        (self.measured[1] < TRIES, true)
    }

    /// Records the cost of one run in any unit.
    pub(crate) fn cost(&mut self, first: bool, cost: u64) {
        let way = first as usize;
        if self.measured[way] == TRIES {
            return; // timed more often than requested
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

    /// Runs a trial and the period after it. Returns how often the first method was used.
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
