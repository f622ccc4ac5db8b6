//! Time from a counter that may jump: when a machine wakes, or a virtual one moves to another host.
//!
//! A [`Line`] turns counts into nanoseconds for a tenth of a second ([`SPAN_NS`]). A count outside
//! its span, because time has passed or because the counter jumped, has the next line drawn by what
//! the kernel's clock says. What a line gives ends with its span, and the next one begins above
//! that end: so times never go backwards, from whichever thread, and a jump of the counter moves
//! them forward by a span at most. How far they are ahead of the kernel's clock after that harms
//! nobody: only differences are used.
//!
//! Nobody waits here: a thread may lose its processor, or its process be copied by a fork, at any
//! point.

use std::sync::atomic::{fence, AtomicU64, Ordering::*};
use std::sync::Mutex;

#[cfg(test)]
mod tests;

/// A counter and a clock.
pub(crate) trait Source: Send + Sync {
    /// The counter.
    fn ticks(&self) -> u64;
    /// The clock, in nanoseconds; never goes backwards.
    fn ns(&self) -> u64;
}

/// For so long a line is good. Drawing one takes about a microsecond.
const SPAN_NS: u64 = 100_000_000;
/// First measurement of the counter's rate: its error is then below 100 ppm, which timers do not
/// notice, and opening an engine does not feel the time.
const FIRST_NS: u64 = 1_000_000;
/// Later ones take so long: their error is below 0.1 ppm.
const MEASURE_NS: u64 = 1_000_000_000;
/// A line is ahead of the clock by this, so that it is not behind it where the rate has its error
/// for a few milliseconds (a thread that could not draw the line answers by the clock meanwhile).
const LEAD_NS: u64 = 1_000;
/// The clock and a line that differ by more, and more than a thousandth of the time since the line
/// began: the counter has jumped.
const JUMP_NS: u64 = 1_000_000;
/// A counter that is behind the line by less is another core's: time stands still so long.
const BEHIND_NS: u64 = 2 * JUMP_NS;
/// After so many jumps the clock alone is used: each moves time by a span.
const JUMPS_MAX: u32 = 16;
/// Machines differ by less than this factor: a rate that does more was measured over a jump.
const RATES: u64 = 4;
/// More ticks than any line or sleep takes.
const FAR_TICKS: u64 = 1 << 56;
/// Lines that are kept: a reader that lost its processor sees that its line is another's now.
const LINES: usize = 4;

/// Counter and clock at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    ticks: u64,
    ns: u64,
}

/// A straight line from ticks to nanoseconds, good for some ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    from: Moment,
    /// Ticks that it is good for; 0: none, the clock alone is used.
    span: u64,
    /// Nanoseconds per tick, times 2^32.
    slope: u64,
    /// How far our time is ahead of the clock, without the lead.
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

    /// The time so many ticks after its beginning.
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        self.from.ns + ((u128::from(ticks) * u128::from(self.slope)) >> 32) as u64
    }

    /// The time when the clock shows this, once the line is over.
    fn after(&self, ns: u64) -> u64 {
        (ns + self.ahead_ns).max(self.at(self.span))
    }
}

/// Ticks in so many nanoseconds.
fn ticks_of(ns: u64, slope: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(slope.max(1))) as u64
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

/// The state by which the next line is drawn.
#[derive(Debug)]
struct Ruler {
    /// The first slope.
    usual: u64,
    /// Where the measurement of the rate began.
    base: Moment,
    /// It takes one span only: nothing better is known.
    hurried: bool,
    jumps: u32,
}

/// The clock.
#[derive(Debug)]
pub(crate) struct CounterClock<C> {
    source: C,
    /// How many lines there were; the last is in use.
    drawn: AtomicU64,
    lines: [Slot; LINES],
    ruler: Mutex<Ruler>,
}

/// A line where all threads see it.
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
    /// Measures the rate for a millisecond; none: it is no counter.
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
                hurried: true,
                jumps: 0,
            }),
        };
        to.ns += LEAD_NS;
        counted.lines[0].store(&Line::new(to, slope, 0));
        Some(counted)
    }

    /// The time; never less than an earlier answer to any thread.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        // The line first: one that was replaced is not good for what is counted after that.
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

    /// The time where the line that was looked at does not give it.
    #[cold]
    fn outside(&self) -> u64 {
        let mut ruler = self.ruler.try_lock();
        // Others may have drawn the next line meanwhile.
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
            // Somebody draws the next line: it will not be below this.
            _ => line.after(self.source.ns()),
        }
    }

    /// Draws the line after `line`; the time at its beginning.
    fn draw(&self, ruler: &mut Ruler, line: &Line) -> u64 {
        let here = moment(&self.source);
        let ticks = here.ticks.wrapping_sub(line.from.ticks);
        let counted = line.at(ticks.min(FAR_TICKS));
        let due = here.ns + line.ahead_ns;
        let passed = due.saturating_sub(line.from.ns);
        let jumped = counted.abs_diff(due) > JUMP_NS + passed / 1_000;
        let mut slope = line.slope;
        ruler.jumps += jumped as u32;
        if jumped && !ruler.hurried {
            (ruler.base, ruler.hurried) = (here, true);
        } else if ruler.hurried || here.ns > ruler.base.ns + MEASURE_NS {
            let usual = ruler.usual / RATES..=ruler.usual * RATES;
            let measured = slope_between(ruler.base, here).filter(|s| usual.contains(s));
            slope = measured.unwrap_or(slope);
            (ruler.base, ruler.hurried) = (here, false);
        }
        let ns = line.after(here.ns + LEAD_NS);
        let ahead_ns = ns - LEAD_NS - here.ns;
        let ticks = here.ticks;
        let mut next = Line::new(Moment { ticks, ns }, slope, ahead_ns);
        if ruler.jumps >= JUMPS_MAX {
            next.span = 0;
        }
        // Nobody else draws, and nobody reads what is written until it is whole.
        let drawn = self.drawn.load(Relaxed) + 1;
        self.lines[drawn as usize % LINES].store(&next);
        self.drawn.store(drawn, Release);
        ns
    }
}

/// The tightest of a few readings of clock and counter: one that was interrupted is not used.
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
