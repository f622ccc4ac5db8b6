//! Home-made words that gave way to the field's (docs/glossary.md).

use crate::sources::{Report, Source};

/// A retired word and the one in its place. A word counts as a part of a name, too (`new_duel`).
const RETIRED: [(&str, &str); 29] = [
    ("acquitted", "reinstated"),
    ("agenda", "run queue"),
    ("blink", "short sleep"),
    ("buried", "torn down"),
    ("bury", "peer teardown"),
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
    ("greeting", "handshake"),
    ("greetings", "handshakes"),
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
];

/// Checks names and comments of Rust sources.
pub(crate) fn check(source: &Source, report: &mut Report) {
    // The table above has them, and users may still know counters by them.
    let names_them = ["xtask/src/retired.rs", "crates/cli/src/former.rs"];
    if !source.is_rust() || names_them.contains(&source.path.as_str()) {
        return;
    }
    for (at, line) in source.text.lines().enumerate() {
        // Lints of clippy have names of their own.
        let found = retired(line).filter(|_| !line.contains("clippy::"));
        if let Some((word, instead)) = found {
            let (path, at) = (&source.path, at + 1);
            let text = format!("{path}:{at}: {word:?} is retired: {instead} (docs/glossary.md)");
            report.complaints.push(text);
        }
    }
}

/// The first retired word of a line.
fn retired(line: &str) -> Option<(&'static str, &'static str)> {
    parts(line).find_map(|part| {
        let row = RETIRED
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
        let word = |line| retired(line).map(|(word, _)| word);
        assert_eq!(word("    let new_duel = 1;"), Some("duel"));
        assert_eq!(word("pub struct WriteLuck {"), Some("luck"));
        assert_eq!(word("const DUEL_NS: u64 = 1;"), Some("duel"));
        assert_eq!(word("// Paths in quarantine."), Some("quarantine"));
        assert_eq!(word("let snaps = pluck(napkin);"), None);
    }
}
