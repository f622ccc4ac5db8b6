//! Decides when and how to yield the core to other processes, from the results of earlier yields.

/// Bounds of the number of consecutive empty polls before a yield, which adapts between them.
/// Another rank may be waiting for the core, and polling on costs that rank a scheduler slice of 4
/// ms; but a yield that returns at once helped no process.
const AFTER_MIN: u32 = 16;
const AFTER_MAX: u32 = 1_024;
/// A yield that took longer than this let another process run.
const SHARED_NS: u64 = 10_000;
/// A yield that took longer than this let a computing process run for much of its slice. (A process
/// that polls, like this one, yields sooner.)
const COMPUTES_NS: u64 = 1_000_000;
/// After a yield that let another process run, the next 16 yields are sleeps until a packet
/// arrives. They are counted in units, of which a `Sleep` takes 16 and the shorter `ShortSleep`
/// one. Sleeping helps where yielding does not: under the scheduler of Linux 6.18, processes that
/// only yield in a loop starve each other. Ranks of Open MPI (which yields by itself, too) on
/// oversubscribed cores, and their progress threads, did not run for seconds and were declared
/// dead.
const SLEEP_BUDGET: u32 = 16 * SLEEP_COST;
const SLEEP_COST: u32 = 16;
const SHORT_SLEEP_COST: u32 = 1;
/// Empty polls, consecutive or not, after which a yield is tried to learn whether another process
/// wants the core. A ping-pong has too few consecutive empty polls to learn that: MPICH would then
/// yield after every poll because of one slow yield among thousands. The number doubles each time
/// another process did want the core, because a try may cost a slice of 4 ms.
const ASK_AFTER_MIN: u32 = 16;
const ASK_AFTER_MAX: u32 = 1 << 20;

/// A way to yield the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuYield {
    /// A yield after many consecutive empty polls.
    Yield,
    /// A yield between packets that tests whether another process wants the core.
    Question,
    /// Sleep until a packet arrives: another process wants the core.
    Sleep,
    /// Short sleep, for a caller whose awaited event may not end a sleep.
    ShortSleep,
}

/// Results of earlier yields.
pub(crate) struct YieldPolicy {
    /// Consecutive empty polls, and the number that leads to a yield.
    empty: u32,
    after: u32,
    /// Empty polls since the last yield, and the number that leads to a `Question`.
    unasked: u32,
    ask_after: u32,
    /// Remaining sleeps, in units of `SHORT_SLEEP_COST`.
    sleep_budget: u32,
    /// True if the process that took the core last was computing.
    computes: bool,
}

impl YieldPolicy {
    pub(crate) fn new() -> YieldPolicy {
        YieldPolicy {
            empty: 0,
            after: AFTER_MIN,
            unasked: 0,
            ask_after: ASK_AFTER_MIN,
            sleep_budget: 0,
            computes: false,
        }
    }

    /// True if recent yields found no other process.
    pub(crate) fn is_alone(&self) -> bool {
        self.after == AFTER_MAX
    }

    /// True if another process took the core recently.
    pub(crate) fn was_taken(&self) -> bool {
        self.sleep_budget > 0
    }

    /// The yield for a caller that awaits no packets. If other processes only wait, they return the
    /// core soon. From a computing process, a sleeper gets the core back sooner than a process that
    /// yielded.
    pub(crate) fn of_no_packets(&self, yielded: CpuYield) -> CpuYield {
        match (yielded, self.computes) {
            (CpuYield::Sleep, true) => CpuYield::ShortSleep,
            (CpuYield::Sleep, false) => CpuYield::Yield,
            (yielded, _) => yielded,
        }
    }

    /// Counts a poll with `taken` packets.
    pub(crate) fn count(&mut self, taken: usize) {
        if taken == 0 {
            self.empty += 1;
            self.unasked = self.unasked.saturating_add(1);
        } else {
            self.empty = 0;
        }
    }

    /// Counts the next empty poll together with the last one as one.
    pub(crate) fn look_again(&mut self) {
        self.empty -= 1;
    }

    /// The yield that is due after an empty poll.
    pub(crate) fn due(&self) -> Option<CpuYield> {
        if self.empty >= self.after {
            Some(if self.sleep_budget > 0 {
                CpuYield::Sleep
            } else {
                CpuYield::Yield
            })
        } else if self.unasked >= self.ask_after && !self.is_alone() {
            Some(CpuYield::Question)
        } else {
            None
        }
    }

    /// Records a yield and the nanoseconds until the core came back.
    pub(crate) fn made(&mut self, yielded: CpuYield, took_ns: u64) {
        (self.empty, self.unasked) = (0, 0);
        let slept = match yielded {
            CpuYield::Sleep => SLEEP_COST,
            CpuYield::ShortSleep => SHORT_SLEEP_COST,
            CpuYield::Yield | CpuYield::Question => 0,
        };
        if slept > 0 {
            // Two threads may have slept at the same time, or another thread's yield may have used
            // up the sleeps.
            self.sleep_budget = self.sleep_budget.saturating_sub(slept);
        } else if took_ns > SHARED_NS {
            (self.after, self.sleep_budget) = (AFTER_MIN, SLEEP_BUDGET);
            self.computes = took_ns >= COMPUTES_NS;
            if yielded == CpuYield::Question {
                self.ask_after = (2 * self.ask_after).min(ASK_AFTER_MAX);
            }
        } else {
            (self.after, self.sleep_budget) = ((2 * self.after).min(AFTER_MAX), 0);
            self.ask_after = (self.ask_after / 2).max(ASK_AFTER_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls as in a ping-pong, with three empty polls before each of `packets` packets, where
    /// yields take `took_ns`; returns the number of yields.
    fn ping_pong(yields: &mut YieldPolicy, packets: usize, took_ns: u64) -> usize {
        let mut made = 0;
        for taken in [0, 0, 0, 1].into_iter().cycle().take(4 * packets) {
            yields.count(taken);
            if let Some(yielded) = yields.due().filter(|_| taken == 0) {
                yields.made(yielded, took_ns);
                made += 1;
            }
        }
        made
    }

    #[test]
    fn a_ping_pong_learns_that_no_process_wants_the_core() {
        let mut yields = YieldPolicy::new();
        ping_pong(&mut yields, 50, 300);
        assert!(yields.is_alone());
        yields.made(CpuYield::Yield, 4_000_000);
        assert!(!yields.is_alone());
        ping_pong(&mut yields, 50, 300);
        assert!(yields.is_alone());
    }

    #[test]
    fn questions_become_rarer_beside_another_process() {
        let mut yields = YieldPolicy::new();
        let (early, late) = (
            ping_pong(&mut yields, 1_000, 4_000_000),
            ping_pong(&mut yields, 100_000, 4_000_000),
        );
        assert!(early < 10 && late < 10, "{early} {late}");
        ping_pong(&mut yields, 1_000_000, 300);
        assert!(yields.is_alone());
    }

    #[test]
    fn alone_only_a_long_wait_yields() {
        let mut yields = YieldPolicy::new();
        ping_pong(&mut yields, 50, 300);
        assert_eq!(ping_pong(&mut yields, 10_000, 300), 0);
        (0..AFTER_MAX).for_each(|_| yields.count(0));
        assert_eq!(yields.due(), Some(CpuYield::Yield));
    }

    #[test]
    fn a_sleep_may_end_after_a_yield_of_another_thread() {
        let mut yields = YieldPolicy::new();
        yields.made(CpuYield::Yield, 4_000_000);
        yields.made(CpuYield::Question, 300);
        yields.made(CpuYield::Sleep, 1_000_000);
        (0..AFTER_MAX).for_each(|_| yields.count(0));
        assert_eq!(yields.due(), Some(CpuYield::Yield));
    }

    #[test]
    fn sleeps_follow_a_yield_that_let_another_process_run() {
        let mut yields = YieldPolicy::new();
        yields.made(CpuYield::Yield, 4_000_000);
        for _ in 0..SLEEP_BUDGET / SLEEP_COST {
            (0..AFTER_MIN).for_each(|_| yields.count(0));
            assert_eq!(yields.due(), Some(CpuYield::Sleep));
            yields.made(CpuYield::Sleep, 1_000_000);
        }
        (0..AFTER_MIN).for_each(|_| yields.count(0));
        assert_eq!(yields.due(), Some(CpuYield::Yield));
    }

    #[test]
    fn without_awaited_packets_sleeps_are_short_and_only_beside_computing_processes() {
        let mut yields = YieldPolicy::new();
        yields.made(CpuYield::Yield, COMPUTES_NS - 1);
        assert_eq!(yields.of_no_packets(CpuYield::Sleep), CpuYield::Yield);
        assert_eq!(yields.of_no_packets(CpuYield::Question), CpuYield::Question);
        yields.made(CpuYield::Yield, COMPUTES_NS);
        assert_eq!(yields.of_no_packets(CpuYield::Sleep), CpuYield::ShortSleep);
        for _ in 0..SLEEP_BUDGET {
            assert!(yields.was_taken());
            yields.made(CpuYield::ShortSleep, 200_000);
        }
        assert!(!yields.was_taken());
    }
}
