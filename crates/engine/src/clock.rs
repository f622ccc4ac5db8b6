//! Time in nanoseconds, on the scale of `CLOCK_MONOTONIC`, read once per poll.
//!
//! The processor's time-stamp counter costs a little less than `clock_gettime` (measured in a
//! virtual machine: 17 to 24 ns against 22 to 35) and never a system call. It is used only where
//! the processor says it never stops or changes its rate and the kernel still lists it as sound.
//! Its rate is measured once per process over a millisecond, and once more, over a second, when
//! the progress thread finds the time. Times never go backwards, from whichever thread.

use std::sync::OnceLock;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never less than an earlier answer to any thread.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `t` is a valid timespec to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
}

/// Shortest measurement of the counter's rate: its error is then below 100 ppm, which timers
/// do not notice, and opening an engine does not feel the time.
const FIRST_SPAN_NS: u64 = 1_000_000;
/// Span of the second measurement: its error is below 0.1 ppm.
const REFINED_SPAN_NS: u64 = 1_000_000_000;
/// The change to the refined rate jumps forward by as much as the two rates differ over this
/// time, so that a thread that still used the old one has not seen a later time.
const SWITCH_SLACK_NS: u64 = 1_000_000_000;

/// Counter and clock at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
}

/// A straight line from ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Line {
    from: Moment,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
}

impl Line {
    fn at(&self, ticks: u64) -> u64 {
        // Another core's counter may be a few ticks behind the one that drew the line.
        let elapsed = ticks.saturating_sub(self.from.ticks);
        self.from.ns + ((u128::from(elapsed) * u128::from(self.slope)) >> 32) as u64
    }

    /// The rate between two moments, or none if it is no rate of a real counter
    /// (between 100 MHz and 100 GHz).
    fn slope_between(a: Moment, b: Moment) -> Option<u64> {
        let ticks = b.ticks.checked_sub(a.ticks).filter(|&t| t > 0)?;
        let ns = b.ns.checked_sub(a.ns)?;
        let slope = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
        const PER_TICK_NS: u64 = 1 << 32;
        (PER_TICK_NS / 100..=PER_TICK_NS * 10)
            .contains(&slope)
            .then_some(slope)
    }

    /// The line with a better slope, from `ticks` on, above this line around there.
    fn refined(&self, ticks: u64, slope: u64) -> Line {
        let ahead_ns = (u128::from(slope.abs_diff(self.slope)) * u128::from(SWITCH_SLACK_NS)
            / u128::from(self.slope)) as u64;
        let ns = self.at(ticks) + ahead_ns + 1;
        Line {
            from: Moment { ticks, ns },
            slope,
        }
    }
}

static FIRST: OnceLock<Option<Line>> = OnceLock::new();
static REFINED: OnceLock<Line> = OnceLock::new();

/// The processor's time-stamp counter. All values share one calibration per process.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    first: Line,
}

impl TscClock {
    /// The clock, or none where the counter is not to be trusted. The first call in a process
    /// takes about a millisecond.
    pub fn new() -> Option<TscClock> {
        let first = *FIRST.get_or_init(|| if tsc::is_sound() { calibrate() } else { None });
        first.map(|first| TscClock { first })
    }

    /// Measures the rate once more when a second has passed since the first time. Cheap when
    /// there is nothing to do; the progress thread calls it.
    pub fn refine(&self) {
        if REFINED.get().is_some() {
            return;
        }
        let now = self.first.at(tsc::read());
        if now - self.first.from.ns < REFINED_SPAN_NS {
            return;
        }
        let here = moment();
        if let Some(slope) = Line::slope_between(self.first.from, here) {
            REFINED.get_or_init(|| self.first.refined(tsc::read(), slope));
        }
    }
}

impl Clock for TscClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // Counter first, then the line: see `SWITCH_SLACK_NS`.
        let ticks = tsc::read();
        match REFINED.get() {
            Some(line) if ticks >= line.from.ticks => line.at(ticks),
            _ => self.first.at(ticks),
        }
    }
}

fn calibrate() -> Option<Line> {
    let from = moment();
    let mut to = moment();
    while to.ns < from.ns + FIRST_SPAN_NS {
        std::hint::spin_loop();
        to = moment();
    }
    let slope = Line::slope_between(from, to)?;
    Some(Line { from, slope })
}

/// The tightest of a few readings of clock and counter: one that was interrupted is not used.
fn moment() -> Moment {
    let mut best = Moment { ticks: 0, ns: 0 };
    let mut best_width = u64::MAX;
    for _ in 0..8 {
        let before = tsc::read();
        let ns = MonotonicClock.now_ns();
        let width = tsc::read().saturating_sub(before);
        if width < best_width {
            best_width = width;
            let ticks = before + width / 2;
            best = Moment { ticks, ns };
        }
    }
    best
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::arch::x86_64::{__cpuid, __rdtscp};

    /// The counter, not read before earlier loads are done (another thread's later moment must
    /// not get an earlier count); `rdtscp` waits for them at less cost than a fence.
    #[inline]
    pub fn read() -> u64 {
        let mut core = 0;
        // SAFETY: `is_sound` has seen the instruction (a process that had it forbidden by prctl
        // would trap; `is_sound` looks for that too), or this is not called.
        unsafe { __rdtscp(&mut core) }
    }

    /// Constant, unstopping, allowed, and still in the kernel's list of good clock sources.
    pub fn is_sound() -> bool {
        const HAS_RDTSCP: u32 = 1 << 27;
        const INVARIANT_TSC: u32 = 1 << 8;
        #[allow(unused_unsafe)] // newer compilers made the intrinsic safe
        // SAFETY: every x86-64 processor has cpuid.
        let (highest, power) = unsafe { (__cpuid(0x8000_0000).eax, 0x8000_0007) };
        if highest < power {
            return false;
        }
        #[allow(unused_unsafe)]
        // SAFETY: as above.
        let (features, power) = unsafe { (__cpuid(0x8000_0001).edx, __cpuid(power).edx) };
        let fit = features & HAS_RDTSCP != 0 && power & INVARIANT_TSC != 0;
        fit && !is_forbidden() && kernel_trusts_it()
    }

    fn is_forbidden() -> bool {
        let mut mode: libc::c_int = libc::PR_TSC_ENABLE;
        // SAFETY: `mode` is an int to write to.
        let rc = unsafe { libc::prctl(libc::PR_GET_TSC, &mut mode) };
        rc == 0 && mode != libc::PR_TSC_ENABLE
    }

    fn kernel_trusts_it() -> bool {
        let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        let sources = std::fs::read_to_string(path).unwrap_or_default();
        sources.split_whitespace().any(|s| s == "tsc")
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tsc {
    pub fn read() -> u64 {
        0
    }
    pub fn is_sound() -> bool {
        false
    }
}

/// The best clock of this machine.
#[derive(Clone, Copy, Debug)]
pub enum SystemClock {
    /// The time-stamp counter.
    Tsc(TscClock),
    /// The kernel's clock.
    Monotonic(MonotonicClock),
}

impl SystemClock {
    /// Chooses.
    pub fn new() -> SystemClock {
        match TscClock::new() {
            Some(clock) => SystemClock::Tsc(clock),
            None => SystemClock::Monotonic(MonotonicClock),
        }
    }

    /// See [`TscClock::refine`].
    pub fn refine(&self) {
        if let SystemClock::Tsc(clock) = self {
            clock.refine();
        }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        match self {
            SystemClock::Tsc(clock) => clock.now_ns(),
            SystemClock::Monotonic(clock) => clock.now_ns(),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    const LINE: Line = Line {
        from: Moment {
            ticks: 1_000,
            ns: 500,
        },
        slope: 1 << 31, // half a nanosecond per tick: 2 GHz
    };

    #[test]
    fn a_line_converts_and_never_dips() {
        assert_eq!(LINE.at(1_000), 500);
        assert_eq!(LINE.at(3_000), 1_500);
        assert_eq!(LINE.at(0), 500);
        assert_eq!(LINE.at(u64::MAX), 500 + (u64::MAX - 1_000) / 2);
    }

    #[test]
    fn impossible_rates_are_refused() {
        let at = |ticks, ns| Moment { ticks, ns };
        assert_eq!(
            Line::slope_between(at(0, 0), at(2_000, 1_000)),
            Some(1 << 31)
        );
        assert_eq!(Line::slope_between(at(5, 0), at(5, 1_000)), None);
        assert_eq!(Line::slope_between(at(9, 0), at(5, 1_000)), None);
        assert_eq!(Line::slope_between(at(0, 9), at(5, 1)), None);
        assert_eq!(Line::slope_between(at(0, 0), at(1, 1_000_000)), None);
    }

    #[test]
    fn a_refined_line_stays_above_the_first_around_the_switch() {
        for slope in [(1 << 31) + 200_000, (1 << 31) - 200_000] {
            let switch = LINE.from.ticks + 4_000_000_000;
            let refined = LINE.refined(switch, slope);
            for late in [0, 1, 1_000, 1_000_000, 1_900_000_000] {
                assert!(
                    refined.at(switch + late) >= LINE.at(switch + late),
                    "{late}"
                );
            }
            let jump = refined.at(switch) - LINE.at(switch);
            assert!(jump < 200_000, "{jump} ns");
        }
    }

    /// Threads hand the latest time to each other and check that theirs is not before it.
    fn never_backwards(clock: &dyn Clock) {
        let latest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let seen = latest.load(SeqCst);
                        let now = clock.now_ns();
                        assert!(now >= seen, "{now} after {seen}");
                        latest.fetch_max(now, SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn clocks_never_go_backwards_across_threads() {
        never_backwards(&MonotonicClock);
        never_backwards(&SystemClock::new());
    }

    #[test]
    fn the_counter_follows_the_kernels_clock() {
        let Some(clock) = TscClock::new() else {
            return; // the counter of this machine is not sound: nothing to compare
        };
        clock.refine();
        let before = MonotonicClock.now_ns();
        let now = clock.now_ns();
        let after = MonotonicClock.now_ns();
        // 0.1% of the process's age, and a microsecond for the reading itself.
        let slack = 1_000 + (after - clock.first.from.ns) / 1_000;
        assert!(
            now + slack >= before && now <= after + slack,
            "{before} {now} {after}"
        );
    }
}
