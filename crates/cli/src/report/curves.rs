//! Bandwidth of rails over time, as pictures and as lines of text.

use super::data::{Bandwidth, Curve, Facts};
use marline_engine::stats::text::format_bytes;
use maud::{html, Markup};
use std::ops::Range;

/// Most rails with a curve: a screenful or two.
const CURVES_MAX: usize = 32;
/// Width of a picture in pixels.
const WIDTH: f64 = 790.0;
/// Width of the names.
const NAMES: f64 = 170.0;
/// Height of a curve.
const HEIGHT: f64 = 30.0;
/// Columns of a line of text.
const COLUMNS: usize = 40;
/// A column of an outage.
const DOWN: char = 'x';
/// Heights of a column of text.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The curves with most traffic, in order of their names.
fn curves(bandwidth: &Bandwidth) -> Vec<&Curve> {
    let mut curves: Vec<&Curve> = bandwidth.rails.iter().collect();
    curves.sort_by_key(|curve| std::cmp::Reverse(total(curve)));
    curves.truncate(CURVES_MAX);
    curves.sort_by_key(|curve| &curve.end);
    curves
}

fn total(curve: &Curve) -> u64 {
    let all = curve.sent.iter().chain(&curve.received);
    all.fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// The greatest number of bytes in an interval of any curve.
fn peak(curves: &[&Curve]) -> u64 {
    let all = curves
        .iter()
        .flat_map(|curve| curve.sent.iter().chain(&curve.received));
    all.copied().max().unwrap_or(0).max(1)
}

/// Bytes of an interval as bytes per second.
fn per_second(bytes: u64, interval_ns: u64) -> u64 {
    (bytes as f64 * 1e9 / interval_ns.max(1) as f64) as u64
}

/// The scale of all curves.
fn scale(bandwidth: &Bandwidth, curves: &[&Curve]) -> String {
    let rate = format_bytes(per_second(peak(curves), bandwidth.interval_ns));
    let seconds = bandwidth.interval_ns as f64 / 1e9;
    format!("full height: {rate}/s; one step: {seconds:.1} s")
}

/// The curves as pictures: bytes sent as a line, bytes received as an area.
pub fn pictures(f: &Facts) -> Markup {
    let curves = curves(&f.bandwidth);
    let more = f.bandwidth.rails.len() - curves.len();
    let peak = peak(&curves);
    let height = HEIGHT * curves.len() as f64;
    html! {
        svg viewBox=(format!("0 0 {} {height}", NAMES + WIDTH)) role="img" aria-label="Bandwidth" {
            @for (n, curve) in curves.iter().enumerate() {
                @let y = HEIGHT * (n as f64 + 1.0) - 2.0;
                g.curve {
                    text x="0" y=(format!("{:.0}", y - HEIGHT / 3.0)) { (curve.end.name()) }
                    polygon.received points=(points(&curve.received, y, peak, true)) {
                        title { (bytes_in_all(&curve.received)) " received" }
                    }
                    polyline.sent points=(points(&curve.sent, y, peak, false)) {
                        title { (bytes_in_all(&curve.sent)) " sent" }
                    }
                }
            }
        }
        p { "Line: sent; area: received; " (scale(&f.bandwidth, &curves)) "." }
        @if more > 0 { p { (more) " more rails, with less traffic, are not drawn." } }
    }
}

fn bytes_in_all(slots: &[u64]) -> String {
    format_bytes(
        slots
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes)),
    )
}

/// The points of a curve whose base is at `y`; of an area with its two lower corners.
fn points(slots: &[u64], y: f64, peak: u64, area: bool) -> String {
    let step = WIDTH / slots.len().max(1) as f64;
    let tops = slots.iter().enumerate().map(|(n, &bytes)| {
        let x = NAMES + step * (n as f64 + 0.5);
        let height = (HEIGHT - 4.0) * bytes as f64 / peak as f64;
        format!("{x:.0},{:.1}", y - height)
    });
    let mut all: Vec<String> = tops.collect();
    if area {
        let right = NAMES + step * (slots.len() as f64 - 0.5);
        all.insert(0, format!("{:.0},{y:.1}", NAMES + step * 0.5));
        all.push(format!("{right:.0},{y:.1}"));
    }
    all.join(" ")
}

/// The bytes sent as lines of text, one for each rail.
pub fn text(f: &Facts) -> String {
    let curves = curves(&f.bandwidth);
    let names = curves.iter().map(|curve| curve.end.name().chars().count());
    let width = names.max().unwrap_or(0);
    let mut out = String::new();
    for curve in &curves {
        let columns = columns(&curve.sent, peak(&curves), &|slots| {
            is_down(f, curve, slots)
        });
        let mean = format_bytes(mean(&curve.sent, f.bandwidth.interval_ns));
        out += &format!("{:<width$} |{columns}| {mean}/s\n", curve.end.name());
    }
    out
}

/// The mean rate in bytes per second.
fn mean(slots: &[u64], interval_ns: u64) -> u64 {
    let all = slots
        .iter()
        .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    per_second(all / slots.len().max(1) as u64, interval_ns)
}

/// Returns whether an outage at the end of a curve overlaps these intervals.
fn is_down(f: &Facts, curve: &Curve, slots: Range<usize>) -> bool {
    let time = |slot: usize| f.from_unix_ns + f.bandwidth.interval_ns * slot as u64;
    let mut outages = f.outages.iter().filter(|o| o.ends.contains(&curve.end));
    outages.any(|outage| {
        let to = outage.to_unix_ns.unwrap_or(u64::MAX);
        outage.from_unix_ns < time(slots.end) && to > time(slots.start)
    })
}

/// A column of text for one interval or several, as high as the greatest of them. A column of an
/// outage with little or no traffic has a mark.
fn columns(slots: &[u64], peak: u64, is_down: &dyn Fn(Range<usize>) -> bool) -> String {
    let together = slots.len().div_ceil(COLUMNS).max(1);
    let block = |(column, chunk): (usize, &[u64])| {
        let bytes = chunk.iter().copied().max().unwrap_or(0);
        let height = (u128::from(bytes) * 8).div_ceil(u128::from(peak)) as usize;
        let first = column * together;
        match height <= 1 && is_down(first..first + chunk.len()) {
            true => DOWN,
            false => BLOCKS[height.min(8)],
        }
    };
    slots.chunks(together).enumerate().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::super::data::Outage;
    use super::*;

    #[test]
    fn columns_are_as_high_as_the_greatest_interval() {
        let up = |_| false;
        assert_eq!(columns(&[0, 1, 50, 100], 100, &up), " ▁▄█");
        assert_eq!(columns(&[1; 120], 1, &up).chars().count(), COLUMNS);
    }

    #[test]
    fn outages_have_a_mark_where_little_is_sent() {
        let mut f = Facts::default();
        let curve = Curve::default();
        f.bandwidth.interval_ns = 10;
        f.outages = vec![Outage {
            ends: vec![curve.end.clone()],
            from_unix_ns: 15,
            to_unix_ns: Some(40),
            ..Outage::default()
        }];
        let down = |slots| is_down(&f, &curve, slots);
        assert_eq!(columns(&[1, 1, 0, 100, 0], 100, &down), "▁xx█ ");
    }

    #[test]
    fn points_stay_within_the_picture() {
        assert_eq!(points(&[0, 10], 28.0, 10, false), "368,28.0 762,2.0");
        assert_eq!(points(&[10], 28.0, 10, true), "565,28.0 565,2.0 565,28.0");
        assert_eq!(points(&[], 28.0, 10, false), "");
    }
}
