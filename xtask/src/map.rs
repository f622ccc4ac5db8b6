//! `ARCHITECTURE.md` against the code: its map lists the files there are, and every name that it
//! quotes is one of the code.

use crate::sources::{Report, Source};
use std::collections::BTreeSet;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Checks the map and the names.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    let Some(document) = sources.iter().find(|s| s.path == DOCUMENT) else {
        report.complaints.push(format!("{DOCUMENT} is missing"));
        return;
    };
    let listed = listed(&document.text);
    let is_ours = |p: &&str| p.ends_with(".rs") && p.contains("/src/");
    let there: BTreeSet<&str> = sources.iter().map(|s| &*s.path).filter(is_ours).collect();
    for path in &there {
        if !listed.contains(*path) {
            let text = format!("{DOCUMENT}: the map lacks {path}");
            report.complaints.push(text);
        }
    }
    for path in listed.iter().filter(|p| !there.contains(&***p)) {
        let text = format!("{DOCUMENT}: the map lists {path}, which is not there");
        report.complaints.push(text);
    }
    let code = sources.iter().filter(|s| !s.path.ends_with(".md"));
    let words: BTreeSet<&str> = code.flat_map(|s| s.text.split(is_no_word)).collect();
    for (at, line) in document.text.lines().enumerate() {
        for name in quoted_names(line).filter(|n| !words.contains(n)) {
            let text = format!("{DOCUMENT}:{}: no `{name}` in the code", at + 1);
            report.complaints.push(text);
        }
    }
}

fn is_no_word(c: char) -> bool {
    !(c.is_alphanumeric() || c == '_')
}

/// Files of the map, under headings `### \`directory/\``: rows `| \`file.rs\` | …` of a table, or
/// lists `- \`folder/\` …` that name files of the folder in backticks, on one line or several.
fn listed(text: &str) -> BTreeSet<String> {
    let (mut directory, mut folder) = ("", "");
    let mut files = BTreeSet::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            (directory, folder) = (heading.split('`').next().unwrap_or_default(), "");
        } else if line.starts_with('#') {
            directory = "";
        } else if directory.is_empty() {
        } else if let Some(row) = line.strip_prefix("| `") {
            let file = row.split('`').next().unwrap_or_default();
            files.insert(format!("{directory}{file}"));
        } else {
            if line.starts_with("- ") {
                folder = "";
            }
            for name in line.split('`').skip(1).step_by(2) {
                if name.ends_with('/') {
                    folder = name;
                } else if name.ends_with(".rs") {
                    files.insert(format!("{directory}{folder}{name}"));
                }
            }
        }
    }
    files
}

/// Last parts of what a line quotes in backticks, as far as that looks like a name of the code.
fn quoted_names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter_map(|q| {
        let name = q.rsplit("::").next()?.trim_end_matches("()");
        let starts = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        (starts && !name.contains(is_no_word)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let code = source("crates/a/src/b.rs", "fn there() {}");
        let mut report = Report::default();
        check(&[code, source(DOCUMENT, document)], &mut report);
        report.complaints
    }

    #[test]
    fn the_map_and_the_names_are_held_against_the_code() {
        let map = "### `crates/a/src/`\n| `b.rs` | it |\n";
        assert!(complaints(&format!("{map}`Any::there`, `x y`, `there()`")).is_empty());
        let list = "### `crates/a/src/`\n- `b.rs` it\n";
        assert!(complaints(list).is_empty());
        assert_eq!(
            complaints(&format!("{list}- `c/` of `d.rs`,\n  `e.rs`\n")).len(),
            2
        );
        assert_eq!(complaints(&format!("{map}`gone`")).len(), 1);
        assert_eq!(complaints(&format!("{map}| `c.rs` | not there |")).len(), 1);
        assert_eq!(complaints("no map").len(), 1);
    }
}
