//! A counter that behaves like those of machines that are suspended or migrated.

use super::*;
use std::sync::atomic::AtomicBool;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A counter of two ticks per nanosecond, or of a rate that is set; each reading of the clock takes
/// 10 ns.
#[derive(Debug)]
struct Fake {
    ticks: AtomicU64,
    ns: AtomicU64,
    rate: AtomicU64,
    /// Held while time passes: counter and clock advance together. Without it a thread that is
    /// descheduled between them makes others see 50 us of one and not of the other.
    passing: Mutex<()>,
}

impl Fake {
    fn pass(&self, ns: u64) {
        let _passing = self.passing.lock();
        self.ticks.fetch_add(ns * self.rate.load(Relaxed), SeqCst);
        self.ns.fetch_add(ns, SeqCst);
    }
}

impl Source for Fake {
    fn ticks(&self) -> u64 {
        let _passing = self.passing.lock();
        self.ticks.load(SeqCst)
    }

    fn ns(&self) -> u64 {
        self.pass(10);
        let _passing = self.passing.lock();
        self.ns.load(SeqCst)
    }
}

fn clock() -> CounterClock<Fake> {
    let fake = Fake {
        ticks: AtomicU64::new(1_000 * SECOND),
        ns: AtomicU64::new(7 * SECOND),
        rate: AtomicU64::new(2),
        passing: Mutex::new(()),
    };
    CounterClock::new(fake).unwrap()
}

impl CounterClock<Fake> {
    /// Lets time pass in steps of 50 us like a polling program; returns the time that the clock
    /// showed.
    fn poll_for(&self, ns: u64) -> u64 {
        let (start, end) = (self.now_ns(), self.source.ns.load(SeqCst) + ns);
        let mut last = start;
        while self.source.ns.load(SeqCst) < end {
            self.source.pass(50_000);
            let now = self.now_ns();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        last - start
    }

    /// Sets the counter to another value; returns the clock's time before and after.
    fn jump(&self, ticks: u64) -> (u64, u64) {
        let before = self.now_ns();
        self.source.ticks.store(ticks, SeqCst);
        (before, self.now_ns())
    }
}

fn assert_close(seemed: u64, real: u64, by: u64) {
    assert!(seemed.abs_diff(real) <= by, "{seemed} in {real}");
}

/// After hibernation the counter restarts at 0: a naive clock would stand still until the counter
/// is back, and no timer would ring.
#[test]
fn time_goes_on_when_the_counter_was_set_back() {
    for ticks in [0, 5, 999 * SECOND, 1_000 * SECOND] {
        let clock = clock();
        clock.poll_for(10 * SECOND);
        let (before, after) = clock.jump(ticks);
        assert!(after >= before && after <= before + 2 * SPAN_NS);
        assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, 2 * SPAN_NS);
        // Its lead over the clock stays constant.
        assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, MS);
    }
}

/// A host with a longer uptime: a naive clock would leap by hours.
#[test]
fn time_does_not_leap_with_the_counter() {
    for hours in [1, 1_000, 1_000_000] {
        let clock = clock();
        clock.poll_for(10 * SECOND);
        let ticks = clock.source.ticks() + hours * 3_600 * 2 * SECOND;
        let (before, after) = clock.jump(ticks);
        assert!(after >= before && after <= before + 2 * SPAN_NS);
        assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, 2 * SPAN_NS);
        assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, MS);
    }
}

/// Small jumps stay within a line: time is wrong by their size for a span.
#[test]
fn small_jumps_are_found_at_the_end_of_a_line() {
    let clock = clock();
    clock.poll_for(10 * SECOND);
    clock.jump(clock.source.ticks() + 40 * MS);
    assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, SPAN_NS);
    assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, MS);
}

/// Another host whose counter has another rate.
#[test]
fn the_rate_is_measured_anew_after_a_jump() {
    for rate in [1, 3, 5] {
        let clock = clock();
        clock.poll_for(10 * SECOND);
        clock.source.rate.store(rate, SeqCst);
        clock.jump(9);
        clock.poll_for(SECOND);
        assert_close(clock.poll_for(100 * SECOND), 100 * SECOND, MS);
    }
}

#[test]
fn a_process_that_sleeps_long_wakes_at_the_right_time() {
    let clock = clock();
    clock.poll_for(2 * SECOND);
    for seconds in [1, 60, 100_000] {
        let before = clock.now_ns();
        clock.source.pass(seconds * SECOND);
        assert_close(clock.now_ns() - before, seconds * SECOND, MS);
    }
    assert_eq!(clock.ruler.lock().unwrap().jumps, 0);
}

/// A counter that jumps again and again is abandoned; time continues without a large lead.
#[test]
fn a_counter_that_never_stops_jumping_is_given_up() {
    let clock = clock();
    let start = clock.now_ns();
    for n in 0..2_000u64 {
        clock.jump(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        clock.poll_for(10 * MS);
    }
    let most = 2 * u64::from(JUMPS_MAX) * SPAN_NS;
    assert_close(clock.now_ns() - start, 20 * SECOND, most);
    assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, MS);
}

/// Another core's counter may lag a little.
#[test]
fn a_counter_that_is_a_little_behind_stands_still_for_a_moment() {
    let clock = clock();
    clock.poll_for(2 * SECOND);
    let line = clock.line();
    let (_, after) = clock.jump(line.from.ticks - 100);
    assert_eq!(after, line.from.ns);
    assert_eq!(clock.ruler.lock().unwrap().jumps, 0);
}

/// A thread that cannot draw a line, for example in a forked child whose parent was drawing it,
/// uses the clock.
#[test]
fn no_thread_waits_for_the_one_that_draws_a_line() {
    let clock = clock();
    clock.poll_for(2 * SECOND);
    let _held = clock.ruler.lock().unwrap();
    assert_close(clock.poll_for(10 * SECOND), 10 * SECOND, MS);
    let (before, after) = clock.jump(0);
    assert!(after >= before && after <= before + SPAN_NS);
    clock.poll_for(10 * SECOND);
}

/// Threads pass the latest time to each other, while the counter jumps from time to time.
#[test]
fn time_never_goes_backwards_across_threads_and_jumps() {
    let (clock, latest, over) = (clock(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let seen = latest.load(SeqCst);
                    let now = clock.now_ns();
                    assert!(now >= seen, "{now} after {seen}");
                    latest.fetch_max(now, SeqCst);
                }
            });
        }
        for n in 1..=20_000u64 {
            clock.source.pass(50_000);
            latest.fetch_max(clock.now_ns(), SeqCst);
            if n % 4_000 == 0 {
                clock.source.ticks.store(n, SeqCst);
            }
        }
        over.store(true, SeqCst);
    });
    assert!(clock.drawn.load(SeqCst) > 5);
}

#[test]
fn impossible_rates_are_refused() {
    let at = |ticks, ns| Moment { ticks, ns };
    assert_eq!(slope_between(at(0, 0), at(2_000, 1_000)), Some(1 << 31));
    assert_eq!(slope_between(at(5, 0), at(5, 1_000)), None);
    assert_eq!(slope_between(at(9, 0), at(5, 1_000)), None);
    assert_eq!(slope_between(at(0, 9), at(5, 1)), None);
    assert_eq!(slope_between(at(0, 0), at(1, 1_000_000)), None);
}
