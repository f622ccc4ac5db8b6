//! Home-made words that gave way to the field's (docs/glossary.md).

use crate::scan::code_lines;
use crate::sources::{Report, Source};

/// A retired word and the one in its place. A word counts as a part of a name, too (`new_duel`).
const RETIRED: [(&str, &str); 45] = [
    ("acquitted", "reinstated"),
    ("agenda", "run queue"),
    ("aloud", "to standard error"),
    ("askers", "requesters"),
    ("blink", "short sleep"),
    ("buried", "torn down"),
    ("bury", "peer teardown"),
    ("chokes", "too small"),
    ("deaf", "unreachable"),
    ("doze", "sleep"),
    ("dozes", "sleeps"),
    ("duel", "path comparison"),
    ("duels", "path comparisons"),
    ("evacuate", "requeue in-flight frames"),
    ("evacuated", "requeued"),
    ("glance", "short poll"),
    ("granule", "block"),
    ("granules", "blocks"),
    ("graveyard", "retired buffers"),
    ("greet", "send HELLO"),
    ("greeting", "handshake"),
    ("greetings", "handshakes"),
    ("homeless", "without a table"),
    ("hurried", "short, or one span"),
    ("luck", "write backoff"),
    ("nap", "sleep"),
    ("nappers", "sleepers"),
    ("naps", "sleeps"),
    ("needless", "spurious"),
    ("quarantine", "isolation"),
    ("quarantined", "isolated"),
    ("rival", "reference path"),
    ("rivals", "reference paths"),
    ("sated", "poll budget"),
    ("spoil", "poison"),
    ("spoilt", "poisoned"),
    ("unborn", "not started"),
    ("unjudged", "unverified"),
    ("unkept", "unrecorded"),
    ("unname", "remove from the address vector"),
    ("unsaid", "not covered by an ack"),
    ("unspoken", "without a common version"),
    ("untold", "without an entry"),
    ("vacate", "drop the position"),
    ("weather", "packet faults"),
];

/// Words of names in `src` that are plain English in comments.
const RETIRED_NAMES: [(&str, &str); 4] = [
    ("card", "NIC, or member descriptor"),
    ("lets", "admissions"),
    ("parting", "draining"),
    ("told", "reported, notified, announced or known"),
];

/// Checks names and comments of Rust sources.
pub(crate) fn check(source: &Source, report: &mut Report) {
    // The table above has them, and users may still know counters by them.
    let names_them = ["xtask/src/retired.rs", "crates/cli/src/former.rs"];
    if !source.is_rust() || names_them.contains(&source.path.as_str()) {
        return;
    }
    let mut complain = |at: usize, (word, instead): Row| {
        let (path, at) = (&source.path, at + 1);
        let text = format!("{path}:{at}: {word:?} is retired: {instead} (docs/glossary.md)");
        report.complaints.push(text);
    };
    for (at, line) in source.text.lines().enumerate() {
        // Lints of clippy have names of their own.
        let found = first_of(&RETIRED, line).filter(|_| !line.contains("clippy::"));
        found.into_iter().for_each(|row| complain(at, row));
    }
    if source.path.starts_with("crates/") && source.path.contains("/src/") {
        for (at, line) in code_lines(&source.text).iter().enumerate() {
            let found = first_of(&RETIRED_NAMES, line);
            found.into_iter().for_each(|row| complain(at, row));
        }
    }
}

/// A retired word, and the one in its place.
type Row = (&'static str, &'static str);

/// The first word of a line that is among these.
fn first_of(rows: &[Row], line: &str) -> Option<Row> {
    parts(line).find_map(|part| {
        let row = rows
            .iter()
            .find(|(word, _)| part.eq_ignore_ascii_case(word));
        row.copied()
    })
}

/// The words of a line, with names cut at underscores and at capitals behind small letters.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphabetic());
    words.flat_map(humps)
}

/// `WriteLuck` as `Write` and `Luck`.
fn humps(word: &str) -> impl Iterator<Item = &str> {
    let bytes = word.as_bytes();
    let begins = |at: &usize| bytes[at - 1].is_ascii_lowercase() && bytes[*at].is_ascii_uppercase();
    let cuts: Vec<usize> = (1..bytes.len()).filter(begins).collect();
    let starts = std::iter::once(0).chain(cuts.clone());
    let ends = cuts.into_iter().chain(std::iter::once(word.len()));
    starts.zip(ends).map(|(start, end)| &word[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_names_and_comments() {
        let word = |line| first_of(&RETIRED, line).map(|(word, _)| word);
        assert_eq!(word("    let new_duel = 1;"), Some("duel"));
        assert_eq!(word("pub struct WriteLuck {"), Some("luck"));
        assert_eq!(word("const DUEL_NS: u64 = 1;"), Some("duel"));
        assert_eq!(word("// Paths in quarantine."), Some("quarantine"));
        assert_eq!(word("let snaps = pluck(napkin);"), None);
    }

    #[test]
    fn some_words_are_retired_in_names_alone() {
        let complaints = |path: &str, text: &str| {
            let (path, text) = (path.to_owned(), text.to_owned());
            let mut report = Report::default();
            check(&Source { path, text }, &mut report);
            report.complaints.len()
        };
        let text = "let is_told = 1; // the peer is told\nlet text = \"told\";\n";
        assert_eq!(complaints("crates/a/src/b.rs", text), 1);
        assert_eq!(complaints("crates/a/tests/b.rs", text), 0);
    }
}
