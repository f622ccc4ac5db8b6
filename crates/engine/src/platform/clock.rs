//! Time in nanoseconds on the scale of `CLOCK_MONOTONIC`, read once per poll.
//!
//! Reading the processor's time-stamp counter costs a little less than `clock_gettime` and never a
//! system call. It is used only where the processor reports a constant, unstopping counter and the
//! kernel still lists it as a clock source. It is checked against the kernel's clock all the same
//! (`counter_clock.rs`), because suspending, hibernating or migrating the machine may change it.
//! Times never go backwards in any thread.

use crate::platform::counter_clock::{CounterClock, Source};
use crate::platform::fork::PerProcess;
use std::convert::Infallible;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since a fixed moment; never less than an earlier result in any thread.
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

/// The processor's time-stamp counter and the kernel's clock.
#[derive(Debug)]
struct Tsc;

impl Source for Tsc {
    #[inline]
    fn ticks(&self) -> u64 {
        tsc::read()
    }

    fn ns(&self) -> u64 {
        MonotonicClock.now_ns()
    }
}

/// Each process has its own clock: a fork may happen while a thread of the parent updates it.
static COUNTER_CLOCK: PerProcess<Option<CounterClock<Tsc>>> = PerProcess::new();

/// The processor's time-stamp counter. All values of the type share one clock per process.
#[derive(Clone, Copy, Debug)]
pub struct TscClock(&'static CounterClock<Tsc>);

impl TscClock {
    /// The clock; `None` if the counter is unreliable. The first call in a process takes about a
    /// millisecond.
    pub fn new() -> Option<TscClock> {
        let make =
            || Ok::<_, Infallible>(tsc::is_sound().then(|| CounterClock::new(Tsc)).flatten());
        let Ok(counted) = COUNTER_CLOCK.get_or_make(make);
        counted.as_ref().map(TscClock)
    }
}

impl Clock for TscClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::arch::x86_64::{__cpuid, __rdtscp};

    /// Reads the counter after all earlier loads: otherwise a thread that has seen another thread's
    /// later time could read an earlier count. `rdtscp` waits for the loads at less cost than a
    /// fence.
    #[inline]
    pub fn read() -> u64 {
        let mut core = 0;
        // SAFETY: only called after `is_sound` has found the instruction, and found that prctl does
        // not forbid it to the process, which would trap.
        unsafe { __rdtscp(&mut core) }
    }

    /// True if the counter is constant, unstopping, permitted, and still among the kernel's clock
    /// sources.
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
    /// Chooses the best clock.
    pub fn new() -> SystemClock {
        match TscClock::new() {
            Some(clock) => SystemClock::Tsc(clock),
            None => SystemClock::Monotonic(MonotonicClock),
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

    /// Threads pass the latest time to each other and check that their own is not before it.
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
            return; // the counter of this machine is unreliable: no comparison
        };
        let look = || {
            let before = MonotonicClock.now_ns();
            (before, clock.now_ns(), MonotonicClock.now_ns())
        };
        let (before, start, begun) = look();
        while MonotonicClock.now_ns() < begun + 250_000_000 {
            let _ = clock.now_ns();
        }
        let (ending, end, after) = look();
        // Tolerance: a thousandth of the time plus ten microseconds.
        let (least, most) = (ending - begun, after - before);
        let slack = 10_000 + most / 1_000;
        let counted = end - start;
        assert!(
            least <= counted + slack && counted <= most + slack,
            "{least} {counted} {most}"
        );
    }
}
