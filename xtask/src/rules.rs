//! Rules about single files.

use crate::scan::code_lines;
use crate::sources::{Report, Source};

/// Crates without any `unsafe`.
const SAFE: [&str; 4] = ["wire", "proto", "sim", "cli"];
/// Marks of unfinished work, split so that this file may contain them.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimplemented", "!("),
    concat!("todo", "!("),
];
/// Prefixes of paths that exist on one machine only.
const MACHINE: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];
/// Beginnings of the lines that a merge leaves around both sides of a conflict.
const CONFLICT: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];
/// Lines above an `unsafe` block searched for its reason (clippy is more exact).
const REASON_LINES: usize = 8;

/// Checks one file.
pub(crate) fn check(source: &Source, report: &mut Report) {
    let mut complain = |line: usize, text: String| {
        let text = format!("{}:{}: {text}", source.path, line + 1);
        report.complaints.push(text);
    };
    if is_safe_root(&source.path) && !source.text.contains("#![forbid(unsafe_code)]") {
        complain(0, "`#![forbid(unsafe_code)]` is missing".to_owned());
    }
    for (at, line) in source.text.lines().enumerate() {
        if let Some(path) = MACHINE.iter().find(|p| names_path(line, p)) {
            complain(at, format!("a path of one machine: {path}"));
        }
        if let Some(mark) = UNFINISHED.iter().find(|m| has_word(line, m)) {
            complain(at, format!("unfinished: {mark}"));
        }
        if CONFLICT.iter().any(|mark| line.starts_with(mark)) {
            complain(at, "an unresolved conflict".to_owned());
        }
        if line.ends_with([' ', '\t']) {
            complain(at, "blank at the end of the line".to_owned());
        }
    }
    if source.is_rust() {
        for at in unreasoned(&source.text) {
            complain(at, "`unsafe` without a SAFETY line".to_owned());
        }
    }
}

/// True for the root file of a target of a crate that forbids `unsafe`.
fn is_safe_root(path: &str) -> bool {
    SAFE.iter().any(|name| {
        let in_crate = path
            .strip_prefix("crates/")
            .and_then(|p| p.strip_prefix(name));
        matches!(in_crate, Some("/src/lib.rs" | "/src/main.rs"))
    })
}

/// True if `line` contains `mark` as a whole word.
fn has_word(line: &str, mark: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + mark.len()..].chars().next();
        let inside = mark.ends_with(word) && after.is_some_and(word);
        !inside && !before.is_some_and(word)
    })
}

/// True if `line` contains a path that begins with `start`, rather than `start` inside a path.
fn names_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.})$".contains(c))
    })
}

/// Lines with an `unsafe` block or impl without a reason above.
fn unreasoned(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, code) in code_lines(text).iter().enumerate() {
        let opens = code.match_indices("unsafe").any(|(i, word)| {
            let rest = code[i + word.len()..].trim_start();
            rest.starts_with('{') || rest.starts_with("impl")
        });
        let from = at.saturating_sub(REASON_LINES);
        let reason = |line: &&str| line.contains("SAFETY:");
        if opens && !lines[from..=at].iter().any(reason) {
            found.push(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut report = Report::default();
        check(&Source { path, text }, &mut report);
        report.complaints
    }

    #[test]
    fn unfinished_work_is_noticed() {
        assert_eq!(
            complaints("a.md", &format!("a {} b", UNFINISHED[0])).len(),
            1
        );
        assert_eq!(complaints("a.rs", &format!("{})", UNFINISHED[3])).len(), 1);
        assert!(complaints("a.sh", &format!("mktemp {}{0}", UNFINISHED[2])).is_empty());
    }

    #[test]
    fn unresolved_conflicts_are_noticed() {
        assert_eq!(complaints("a.md", "<<<<<<< HEAD\na\n").len(), 1);
        assert!(complaints("a.md", "a <<<<<<< b\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_noticed() {
        assert_eq!(complaints("a.md", &format!("cd {}x", MACHINE[0])).len(), 1);
        assert!(complaints("a.md", &format!("$DIR{}x", MACHINE[0])).is_empty());
    }

    #[test]
    fn unsafe_wants_a_reason() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        let good = "fn f() {\n    // SAFETY: g is.\n    unsafe { g() }\n}\n";
        let word = "// unsafe {\nfn f(_: &str) -> &str {\n    \"unsafe {\"\n}\n";
        assert_eq!(complaints("a.rs", bare).len(), 1);
        assert!(complaints("a.rs", good).is_empty());
        assert!(complaints("a.rs", word).is_empty());
    }

    #[test]
    fn forbidden_unsafe_stays_forbidden() {
        assert_eq!(complaints("crates/wire/src/lib.rs", "").len(), 1);
        assert!(complaints("crates/rails/src/lib.rs", "").is_empty());
        assert!(complaints("crates/sim/src/main.rs", "#![forbid(unsafe_code)]\n").is_empty());
    }
}
