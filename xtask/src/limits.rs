//! Limits to the length of lines, functions and files, so that each fits a screen.

use crate::scan::functions;
use crate::sources::{Report, Source};

/// Columns per line.
const COLUMNS: usize = 100;
/// Lines per function.
const FUNCTION_LINES: usize = 70;
/// Lines per file.
const FILE_LINES: usize = 600;

/// Exceptions from before the rules: files, and functions by path and name, with their allowed
/// lines. Numbers only decrease.
const LONGER_FILES: &[(&str, usize)] = &[];
const LONGER_FUNCTIONS: &[(&str, usize)] = &[];
/// Files with overlong lines, and their number.
const LONGER_LINES: &[(&str, usize)] = &[];

/// Checks all Rust sources.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    for source in sources.iter().filter(|s| s.is_rust()) {
        let path = &source.path;
        let lines = source.text.lines().count();
        one(report, LONGER_FILES, path, lines, FILE_LINES, "lines");
        for f in functions(&source.text) {
            let name = format!("{path} {}", f.name);
            one(
                report,
                LONGER_FUNCTIONS,
                &name,
                f.lines,
                FUNCTION_LINES,
                "lines",
            );
        }
        let long = |line: &&str| line.chars().count() > COLUMNS;
        let long = source.text.lines().filter(long).count();
        let what = format!("lines of more than {COLUMNS} columns");
        one(report, LONGER_LINES, path, long, 0, &what);
    }
}

/// Checks a number against its limit or exception.
pub(crate) fn one(
    report: &mut Report,
    exceptions: &[(&str, usize)],
    name: &str,
    found: usize,
    limit: usize,
    what: &str,
) {
    let exception = exceptions.iter().find(|(n, _)| *n == name);
    let allowed = exception.map_or(limit, |(_, n)| *n);
    if found > allowed {
        let text = format!("{name}: {found} {what}, at most {allowed}");
        report.complaints.push(text);
    } else if exception.is_some() && found < allowed {
        let text = format!("{name}: {found} {what}, lower its limit of {allowed} in xtask");
        report.notes.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_hold_until_they_are_not_needed() {
        let mut report = Report::default();
        let table = [("a", 9)];
        one(&mut report, &table, "a", 9, 5, "lines");
        one(&mut report, &table, "b", 5, 5, "lines");
        assert!(report.complaints.is_empty() && report.notes.is_empty());
        one(&mut report, &table, "a", 4, 5, "lines");
        assert_eq!(report.notes.len(), 1);
        one(&mut report, &table, "a", 10, 5, "lines");
        one(&mut report, &table, "b", 6, 5, "lines");
        assert_eq!(report.complaints.len(), 2);
    }
}
