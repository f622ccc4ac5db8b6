//! Figures and times as reports show them.

use marline_engine::wall_clock::LocalTime;

/// Most names in one sentence.
const NAMED_MAX: usize = 4;

/// The time of day, with the date if that is another than that of the job's start.
pub fn clock(unix_ns: u64, start_unix_ns: u64) -> String {
    let (time, start) = (LocalTime::of(unix_ns), LocalTime::of(start_unix_ns));
    match time.date == start.date {
        true => time.clock(),
        false => format!("{} {}", time.day(), time.clock()),
    }
}

/// The date and the time of day.
pub fn date(unix_ns: u64) -> String {
    let time = LocalTime::of(unix_ns);
    format!("{} {}", time.day(), time.clock())
}

/// A part of a total in percent.
pub fn percent(part: u64, total: u64) -> String {
    let value = 100.0 * part as f64 / total.max(part).max(1) as f64;
    match part > 0 && value < 0.001 {
        true => "less than 0.001 %".to_owned(),
        false => format!("{value:.3} %"),
    }
}

/// A duration with three digits at most.
pub fn duration(ns: u64) -> String {
    let short = |value: f64, unit| match value {
        ..9.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    };
    match ns as f64 / 1e3 {
        us @ ..999.5 => short(us, "us"),
        us @ ..999_500.0 => short(us / 1e3, "ms"),
        us => short(us / 1e6, "s"),
    }
}

/// `a, b, c and 3 more`.
pub fn list(names: Vec<String>) -> String {
    let shown = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_764_166_226_000_000_000;

    #[test]
    fn another_day_is_named() {
        assert_eq!(clock(START, START).len(), "14:10:26".len());
        let later = START + 86_400_000_000_000;
        assert!(clock(later, START).starts_with("2025-11-2"));
        assert!(date(START).ends_with(&clock(START, START)));
    }

    #[test]
    fn durations_have_few_digits() {
        for (ns, text) in [
            (4_096, "4.1 us"),
            (524_288, "524 us"),
            (999_600, "1.0 ms"),
            (212_000_000, "212 ms"),
            (17_179_869_184, "17 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn small_parts_are_not_none() {
        assert_eq!(percent(0, 0), "0.000 %");
        assert_eq!(percent(1, 200), "0.500 %");
        assert_eq!(percent(1, 10_000_000), "less than 0.001 %");
    }
}
