//! The timeline of a job as SVG: a row for each rail, with its outages, and the deaths of peers.

use super::data::{End, Facts, Outage};
use super::words::clock;
use marline_engine::stats::outages::format_gap;
use maud::{html, Markup};
use std::collections::BTreeSet;

/// Width of the picture in pixels.
const WIDTH: f64 = 960.0;
/// Width of the names.
const NAMES: f64 = 170.0;
/// Height of a row.
const ROW: f64 = 18.0;
/// Most rows: a screenful or two. Rails with an outage come before others.
const ROWS_MAX: usize = 64;
/// Most bars: a page of this many stays small and opens at once.
const BARS_MAX: usize = 2_000;
/// Least width of a bar, so that short outages can be seen.
const BAR_MIN: f64 = 2.0;
/// Number of marks of time.
const MARKS: u32 = 6;

/// The scale of time.
struct Scale {
    from: u64,
    span: f64,
}

impl Scale {
    fn of(f: &Facts) -> Scale {
        Scale {
            from: f.from_unix_ns,
            span: f.to_unix_ns.saturating_sub(f.from_unix_ns).max(1) as f64,
        }
    }

    /// The place of a time in the picture.
    fn x(&self, unix_ns: u64) -> f64 {
        let part = unix_ns.saturating_sub(self.from) as f64 / self.span;
        NAMES + part.min(1.0) * (WIDTH - NAMES)
    }
}

/// The rails with a row, by name: all with an outage, and others while there is room.
fn rows(f: &Facts) -> Vec<&End> {
    let failed: BTreeSet<&End> = f.outages.iter().flat_map(|o| &o.ends).collect();
    let others = f.rails.iter().map(|rail| &rail.end);
    let others = others.filter(|end| !failed.contains(end));
    let mut rows: Vec<&End> = failed.iter().copied().chain(others).collect();
    rows.truncate(ROWS_MAX);
    rows.sort();
    rows
}

/// The picture.
pub fn timeline(f: &Facts) -> Markup {
    let (rows, scale) = (rows(f), Scale::of(f));
    let height = ROW * (rows.len() as f64 + 1.0);
    let bars = bars(f, &rows);
    let left_out = rows_of(f) - rows.len();
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="Timeline of rails" {
            @for (n, end) in rows.iter().enumerate() {
                text x="0" y=(px(ROW * (n as f64 + 0.75))) { (end.name()) }
                rect.up x=(px(NAMES)) y=(px(ROW * n as f64 + 3.0)) width=(px(WIDTH - NAMES))
                    height=(px(ROW - 6.0)) {}
            }
            @for (n, outage) in &bars { (bar(f, &scale, *n, outage)) }
            @for peer in f.dead_peers.iter().filter(|peer| peer.from_unix_ns > 0) {
                @let x = px(scale.x(peer.from_unix_ns));
                line.dead x1=(x) x2=(x) y1="0" y2=(px(height - ROW)) {
                    title { (peer.name) " given up at " (clock(peer.from_unix_ns, f.from_unix_ns)) }
                }
            }
            (marks(f, &scale, height))
        }
        @if left_out > 0 { p { (left_out) " more rails are not drawn." } }
        @if bars.len() >= BARS_MAX { p { "Later outages are not drawn; the JSON has all." } }
    }
}

/// The number of rails that could have a row.
fn rows_of(f: &Facts) -> usize {
    let failed = f.outages.iter().flat_map(|outage| &outage.ends);
    let all: BTreeSet<&End> = f.rails.iter().map(|rail| &rail.end).chain(failed).collect();
    all.len()
}

/// Outages with the number of their row.
fn bars<'a>(f: &'a Facts, rows: &[&End]) -> Vec<(usize, &'a Outage)> {
    let row = |end: &End| rows.binary_search(&end).ok();
    let all = f.outages.iter().flat_map(|outage| {
        let ends = outage.ends.iter();
        ends.filter_map(move |end| Some((row(end)?, outage)))
    });
    all.take(BARS_MAX).collect()
}

fn bar(f: &Facts, scale: &Scale, row: usize, outage: &Outage) -> Markup {
    let to = outage.to_unix_ns.unwrap_or(f.to_unix_ns);
    let (x, end) = (scale.x(outage.from_unix_ns), scale.x(to));
    let width = (end - x).max(BAR_MIN);
    let class = if outage.corrupt { "corrupt" } else { "down" };
    let at = |unix_ns| clock(unix_ns, f.from_unix_ns);
    let lasted = to.saturating_sub(outage.from_unix_ns);
    html! {
        rect class=(class) x=(px(x.min(WIDTH - width))) y=(px(ROW * row as f64 + 3.0))
            width=(px(width)) height=(px(ROW - 6.0)) {
            title {
                (outage.place) ", " (at(outage.from_unix_ns)) " to " (at(to)) " ("
                (format_gap(lasted)) ")"
            }
        }
    }
}

/// The marks of time below the rows.
fn marks(f: &Facts, scale: &Scale, height: f64) -> Markup {
    let at = |n: u32| f.from_unix_ns + (scale.span * f64::from(n) / f64::from(MARKS)) as u64;
    html! {
        @for n in 0..MARKS {
            @let x = scale.x(at(n));
            line.mark x1=(px(x)) x2=(px(x)) y1="0" y2=(px(height - ROW)) {}
            text x=(px(x)) y=(px(height - ROW * 0.25)) { (clock(at(n), f.from_unix_ns)) }
        }
    }
}

/// A length in pixels.
fn px(value: f64) -> String {
    format!("{value:.1}")
}
