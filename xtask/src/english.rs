//! Checks comments: doc comments are sentences that begin with subject or verb, and measurements
//! are in `docs/design`, not in comments.

use crate::limits::one;
use crate::sources::{Report, Source};
use std::collections::BTreeMap;

/// First words of doc comments that are not sentences.
const OPENERS: [&str; 5] = ["What ", "Whether ", "Who ", "So many ", "That "];
/// Words that indicate a measurement.
const MEASURED: [&str; 4] = ["medians of", "median of", "interleaved", "times the rate"];

/// Allowed number of such doc comments and of comments with measurements, by crate. Numbers only
/// decrease.
const RIDDLES: &[(&str, usize)] = &[];
const FIGURES: &[(&str, usize)] = &[];

/// Checks the comments of all Rust sources by crate.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let mut riddles: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut figures: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.is_rust()) {
        let name = crate_of(&source.path);
        let place = |line: &usize| format!("{}:{}", source.path, line + 1);
        let found = openings(&source.text);
        let riddles = riddles.entry(name).or_default();
        riddles.extend(found.iter().map(place));
        let found = measurements(&source.text);
        figures
            .entry(name)
            .or_default()
            .extend(found.iter().map(place));
    }
    let what = "doc comments that open with \"What\", \"Whether\", \"Who\", \"So many\", \"That\"";
    hold(report, RIDDLES, &riddles, what);
    let what = "comments with measurements, which belong in docs/design";
    hold(report, FIGURES, &figures, what);
}

fn hold(
    report: &mut Report,
    exceptions: &[(&str, usize)],
    found: &BTreeMap<&str, Vec<String>>,
    what: &str,
) {
    for (name, places) in found {
        let before = report.complaints.len();
        one(report, exceptions, name, places.len(), 0, what);
        if report.complaints.len() > before {
            report.complaints.extend(places.iter().cloned());
        }
    }
}

/// The crate of a path: `crates/proto`, or `fuzz`.
fn crate_of(path: &str) -> &str {
    let mut ends = path.match_indices('/').map(|(at, _)| at);
    let first = ends.next().unwrap_or(path.len());
    let end = if path.starts_with("crates/") {
        ends.next()
    } else {
        None
    };
    &path[..end.unwrap_or(first)]
}

/// Lines with a doc comment that begins with one of the openers.
fn openings(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = None;
    for (at, line) in text.lines().enumerate() {
        let doc = doc(line);
        if let Some((kind, words)) = doc {
            let begins = before != Some(kind);
            if begins && OPENERS.iter().any(|o| words.starts_with(o)) {
                found.push(at);
            }
        }
        before = doc.map(|(kind, _)| kind);
    }
    found
}

/// The kind and the text of a doc comment's line.
fn doc(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let kind = line.get(..3).filter(|k| ["///", "//!"].contains(k))?;
    let words = &line[3..];
    (!words.starts_with('/')).then(|| (kind, words.trim_start()))
}

/// Lines with a comment that contains a measurement.
fn measurements(text: &str) -> Vec<usize> {
    let tells = |line: &str| {
        let start = line.trim_start();
        let comment = start
            .strip_prefix("//")
            .or_else(|| Some(line.split_once(" // ")?.1));
        let Some(comment) = comment else {
            return false;
        };
        MEASURED.iter().any(|word| comment.contains(word)) || has_sample_size(comment)
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| tells(line))
        .map(|(at, _)| at)
        .collect()
}

/// True if the comment contains a number of samples, `n=` and a digit.
fn has_sample_size(comment: &str) -> bool {
    comment.match_indices("n=").any(|(at, _)| {
        let before = comment[..at].chars().next_back();
        let after = comment[at + 2..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && after.is_some_and(|c| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riddles_are_found_where_a_doc_comment_begins() {
        let text =
            "//! What it is.\n\n/// The window.\n/// What more.\nfn f() {}\n    /// Whether so.\n";
        assert_eq!(openings(text), [0, 5]);
        assert!(openings("// What is no doc comment.\n/// Whatever\n").is_empty());
    }

    #[test]
    fn measurements_are_found_in_comments() {
        let text = format!(
            "// 4 us, {} 12\nlet {} = 1;\n// (n=15)\n// when=1\n",
            MEASURED[0], "x"
        );
        assert_eq!(measurements(&text), [0, 2]);
    }

    #[test]
    fn crates_are_recognised_by_their_paths() {
        assert_eq!(crate_of("crates/proto/src/a.rs"), "crates/proto");
        assert_eq!(crate_of("fuzz/src/a.rs"), "fuzz");
    }
}
