//! A monotonic clock from the processor's cycle counter, which may jump when a machine wakes or a
//! virtual machine migrates.
//!
//! A [`Line`] converts counts to nanoseconds for a span of [`SPAN_NS`]. A count outside the span,
//! because time has passed or because the counter jumped, requires the next line, drawn from the
//! kernel's clock. Times of a line end with its span and the next line begins above that end, so
//! that times never go backwards in any thread, and a jump of the counter advances them by at most
//! one span. Being ahead of the kernel's clock does no harm: only differences are used.
//!
//! No thread waits here, since a thread may be descheduled, or its process forked, at any point.

use std::sync::atomic::{fence, AtomicU64, Ordering::*};
use std::sync::Mutex;

#[cfg(test)]
mod tests;

/// A counter and the kernel's clock.
pub(crate) trait Source: Send + Sync {
    /// Reads the counter.
    fn ticks(&self) -> u64;
    /// Reads the clock in nanoseconds; never goes backwards.
    fn ns(&self) -> u64;
}

/// Validity of a line. Drawing one takes about a microsecond.
const SPAN_NS: u64 = 100_000_000;
/// Length of the first measurement of the counter's rate: short enough for opening an engine, with
/// an error below 100 ppm, which timers tolerate.
const FIRST_NS: u64 = 1_000_000;
/// Length of later measurements, with an error below 0.1 ppm.
const MEASURE_NS: u64 = 1_000_000_000;
/// Lead of a line over the clock, so that an error of the rate does not make the line fall behind
/// the clock within a few milliseconds. A thread that cannot draw a line uses the clock during that
/// time.
const LEAD_NS: u64 = 1_000;
/// Difference between clock and line that means a jump of the counter, if it also exceeds a
/// thousandth of the time since the line began.
const JUMP_NS: u64 = 1_000_000;
/// Largest lag behind the line that is explained by another core's counter: time then stands still.
const BEHIND_NS: u64 = 2 * JUMP_NS;
/// Number of jumps, each of which advances time by a span, after which only the clock is used.
const JUMPS_MAX: u32 = 16;
/// Largest plausible ratio between two measured rates: a larger ratio comes from a measurement
/// across a jump.
const RATES: u64 = 4;
/// More ticks than any line or sleep spans.
const FAR_TICKS: u64 = 1 << 56;
/// Number of stored lines. A descheduled reader notices if the slot of its line was reused.
const LINES: usize = 4;

/// Simultaneous readings of counter and clock.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    ticks: u64,
    ns: u64,
}

/// A linear map from ticks to nanoseconds, valid for a number of ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    from: Moment,
    /// Ticks for which the line is valid; 0: only the kernel's clock is used.
    span: u64,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
    /// Nanoseconds by which our time is ahead of the clock, without the lead.
    ahead_ns: u64,
}

impl Line {
    fn new(from: Moment, slope: u64, ahead_ns: u64) -> Line {
        Line {
            from,
            span: ticks_of(SPAN_NS, slope),
            slope,
            ahead_ns,
        }
    }

    /// The time `ticks` after the line's beginning.
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        self.from.ns + ((u128::from(ticks) * u128::from(self.slope)) >> 32) as u64
    }

    /// The time at clock reading `ns`, once the line has ended.
    fn after(&self, ns: u64) -> u64 {
        (ns + self.ahead_ns).max(self.at(self.span))
    }
}

/// Ticks in `ns` nanoseconds.
fn ticks_of(ns: u64, slope: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(slope.max(1))) as u64
}

/// The rate between two moments in nanoseconds per tick times 2^32; `None` outside 100 MHz to 100
/// GHz, which no real counter has.
fn slope_between(a: Moment, b: Moment) -> Option<u64> {
    let ticks = b.ticks.checked_sub(a.ticks).filter(|&t| t > 0)?;
    let ns = b.ns.checked_sub(a.ns)?;
    let slope = u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).ok()?;
    const PER_TICK_NS: u64 = 1 << 32;
    (PER_TICK_NS / 100..=PER_TICK_NS * 10)
        .contains(&slope)
        .then_some(slope)
}

/// State for drawing the next line.
#[derive(Debug)]
struct Ruler {
    /// Slope of the first line.
    usual: u64,
    /// Beginning of the measurement of the rate.
    base: Moment,
    /// True if the measurement takes one span only, because no better rate is known.
    one_span: bool,
    jumps: u32,
}

/// The clock.
#[derive(Debug)]
pub(crate) struct CounterClock<C> {
    source: C,
    /// Number of lines drawn; the last one is in use.
    drawn: AtomicU64,
    lines: [Slot; LINES],
    ruler: Mutex<Ruler>,
}

/// A line in shared memory that all threads read.
#[derive(Debug, Default)]
struct Slot([AtomicU64; 5]);

impl Slot {
    #[inline]
    fn load(&self) -> Line {
        let [ticks, ns, span, slope, ahead_ns] = &self.0;
        Line {
            from: Moment {
                ticks: ticks.load(Relaxed),
                ns: ns.load(Relaxed),
            },
            span: span.load(Relaxed),
            slope: slope.load(Relaxed),
            ahead_ns: ahead_ns.load(Relaxed),
        }
    }

    fn store(&self, line: &Line) {
        let Moment { ticks, ns } = line.from;
        let words = [ticks, ns, line.span, line.slope, line.ahead_ns];
        for (to, word) in self.0.iter().zip(words) {
            to.store(word, Relaxed);
        }
    }
}

impl<C: Source> CounterClock<C> {
    /// Measures the rate for a millisecond; `None` if the source does not count.
    pub fn new(source: C) -> Option<CounterClock<C>> {
        let from = moment(&source);
        let mut to = moment(&source);
        while to.ns < from.ns + FIRST_NS {
            std::hint::spin_loop();
            to = moment(&source);
        }
        let slope = slope_between(from, to)?;
        let counted = CounterClock {
            source,
            drawn: AtomicU64::new(0),
            lines: Default::default(),
            ruler: Mutex::new(Ruler {
                usual: slope,
                base: to,
                one_span: true,
                jumps: 0,
            }),
        };
        to.ns += LEAD_NS;
        counted.lines[0].store(&Line::new(to, slope, 0));
        Some(counted)
    }

    /// The time; never less than an earlier result in any thread.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        // Load the line before the counter: a replaced line is not valid for later counts.
        let line = self.line();
        let ticks = self.source.ticks().wrapping_sub(line.from.ticks);
        if ticks < line.span {
            return line.at(ticks);
        }
        self.outside()
    }

    #[inline]
    fn line(&self) -> Line {
        loop {
            let drawn = self.drawn.load(Acquire);
            let line = self.lines[drawn as usize % LINES].load();
            fence(Acquire);
            if self.drawn.load(Relaxed) == drawn {
                return line;
            }
        }
    }

    /// The time outside the current line.
    #[cold]
    fn outside(&self) -> u64 {
        let mut ruler = self.ruler.try_lock();
        // Another thread may have drawn the next line in the meantime.
        let line = self.line();
        let ticks = self.source.ticks().wrapping_sub(line.from.ticks);
        if ticks < line.span {
            return line.at(ticks);
        }
        if line.span > 0 && ticks.wrapping_neg() < ticks_of(BEHIND_NS, line.slope) {
            return line.from.ns;
        }
        match &mut ruler {
            Ok(ruler) if line.span > 0 => self.draw(ruler, &line),
            // another thread draws the next line, which begins above this time
            _ => line.after(self.source.ns()),
        }
    }

    /// Draws the line after `line` and returns the time at its beginning.
    fn draw(&self, ruler: &mut Ruler, line: &Line) -> u64 {
        let here = moment(&self.source);
        let ticks = here.ticks.wrapping_sub(line.from.ticks);
        let counted = line.at(ticks.min(FAR_TICKS));
        let due = here.ns + line.ahead_ns;
        let passed = due.saturating_sub(line.from.ns);
        let jumped = counted.abs_diff(due) > JUMP_NS + passed / 1_000;
        let mut slope = line.slope;
        ruler.jumps += jumped as u32;
        if jumped && !ruler.one_span {
            (ruler.base, ruler.one_span) = (here, true);
        } else if ruler.one_span || here.ns > ruler.base.ns + MEASURE_NS {
            let usual = ruler.usual / RATES..=ruler.usual * RATES;
            let measured = slope_between(ruler.base, here).filter(|s| usual.contains(s));
            slope = measured.unwrap_or(slope);
            (ruler.base, ruler.one_span) = (here, false);
        }
        let ns = line.after(here.ns + LEAD_NS);
        let ahead_ns = ns - LEAD_NS - here.ns;
        let ticks = here.ticks;
        let mut next = Line::new(Moment { ticks, ns }, slope, ahead_ns);
        if ruler.jumps >= JUMPS_MAX {
            next.span = 0;
        }
        // The ruler's lock excludes other writers, and readers do not use a slot before it is
        // complete.
        let drawn = self.drawn.load(Relaxed) + 1;
        self.lines[drawn as usize % LINES].store(&next);
        self.drawn.store(drawn, Release);
        ns
    }
}

/// The tightest of a few pairs of simultaneous readings, so that an interrupted pair is not used.
fn moment(source: &impl Source) -> Moment {
    let mut best = Moment { ticks: 0, ns: 0 };
    let mut best_width = u64::MAX;
    for _ in 0..8 {
        let before = source.ticks();
        let ns = source.ns();
        let width = source.ticks().wrapping_sub(before);
        if width < best_width {
            best_width = width;
            let ticks = before.wrapping_add(width / 2);
            best = Moment { ticks, ns };
        }
    }
    best
}
