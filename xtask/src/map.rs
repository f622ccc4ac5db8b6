//! The list of source files with the first sentence of each, printed by `cargo xtask map`; every
//! file must have one.

use crate::sources::{Report, Source};

/// Checks that each source file begins with a description.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    for source in sources.iter().filter(|s| is_mapped(s)) {
        if first_sentence(&source.text).is_empty() {
            let text = format!("{}: does not begin with `//! …`", source.path);
            report.complaints.push(text);
        }
    }
}

/// A line for each source file whose path begins with `under`, by folder.
pub(crate) fn describe(sources: &[Source], under: &str) -> String {
    let (mut text, mut folder) = (String::new(), "");
    for source in sources.iter().filter(|s| is_mapped(s)) {
        if !source.path.starts_with(under) {
            continue;
        }
        let (of, file) = source.path.rsplit_once('/').unwrap_or_default();
        if of != folder {
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{of}/\n");
            folder = of;
        }
        text += &format!("  {file:<20} {}\n", first_sentence(&source.text));
    }
    text
}

fn is_mapped(source: &Source) -> bool {
    source.is_rust() && source.path.contains("/src/")
}

/// The first sentence of a file's description, on one line; empty without one.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph = lines.map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = paragraph.collect::<Vec<_>>().join(" ");
    let end = paragraph.match_indices(". ").map(|(at, _)| at + 1).next();
    paragraph[..end.unwrap_or(paragraph.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        vec![
            source(
                "crates/a/src/b.rs",
                "//! What is\n//! here. And more.\n\nfn f() {}",
            ),
            source("crates/a/src/c/d.rs", "fn f() {}"),
            source("crates/a/tests/e.rs", "fn f() {}"),
        ]
    }

    #[test]
    fn files_are_listed_with_their_first_sentence() {
        let text = describe(&sources(), "crates/a/src/b");
        assert_eq!(
            text,
            "crates/a/src/\n  b.rs                 What is here.\n"
        );
        assert!(describe(&sources(), "").contains("\ncrates/a/src/c/\n  d.rs"));
    }

    #[test]
    fn a_file_without_a_description_is_complained_of() {
        let mut report = Report::default();
        check(&sources(), &mut report);
        assert_eq!(
            report.complaints,
            ["crates/a/src/c/d.rs: does not begin with `//! …`"]
        );
    }
}
