//! Checks documents against the code: names quoted in `ARCHITECTURE.md` exist, and so do files
//! named in the glossary, in other files and in links.

use crate::scan;
use crate::sources::{Report, Source};
use std::collections::BTreeSet;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = concat!("docs/", "glossary.md");

/// Checks names in `ARCHITECTURE.md` and the glossary, references to documents, and links.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    match sources.iter().find(|s| s.path == ARCHITECTURE) {
        Some(document) => {
            names(document, sources, report);
            folders(document, sources, report);
        }
        None => (report.complaints).push(format!("{ARCHITECTURE} is missing")),
    }
    let there: BTreeSet<&str> = sources.iter().map(|s| &*s.path).collect();
    glossary(sources, &there, report);
    references(sources, &there, report);
}

fn glossary(sources: &[Source], there: &BTreeSet<&str>, report: &mut Report) {
    for source in sources.iter().filter(|s| s.path == GLOSSARY) {
        for (at, line) in source.text.lines().enumerate() {
            let is_there = |p: &String| there.contains(&*format!("{p}.rs")) || is_folder(there, p);
            for place in places(line).filter(|p| !is_there(p)) {
                let text = format!("{GLOSSARY}:{}: there is no {place}", at + 1);
                report.complaints.push(text);
            }
        }
    }
}

fn references(sources: &[Source], there: &BTreeSet<&str>, report: &mut Report) {
    let is_there = |p: &String| there.contains(&**p) || is_folder(there, p);
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            let named = named_documents(line).map(str::to_owned);
            for path in named.chain(links(source, line)).filter(|p| !is_there(p)) {
                let text = format!("{}:{}: there is no {path}", source.path, at + 1);
                report.complaints.push(text);
            }
        }
    }
}

/// True if files are in `folder`.
fn is_folder(there: &BTreeSet<&str>, folder: &str) -> bool {
    let inside = format!("{folder}/");
    let mut next = there.range(&*inside..);
    next.next().is_some_and(|path| path.starts_with(&inside))
}

/// Files and folders that a glossary line quotes as `crate/path`, without `.rs`.
fn places(line: &str) -> impl Iterator<Item = String> + '_ {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter_map(|quoted| {
        let (of, path) = quoted.split_once('/')?;
        Some(format!("crates/{of}/src/{path}"))
    })
}

fn names(document: &Source, sources: &[Source], report: &mut Report) {
    let code = sources.iter().filter(|s| !s.path.ends_with(".md"));
    let words: BTreeSet<String> = code.flat_map(words_in_code).collect();
    for (at, quoted) in quotations(&document.text) {
        if let Some(missing) = missing(quoted, &words, sources) {
            let text = format!("{ARCHITECTURE}:{at}: no `{missing}` in the code");
            report.complaints.push(text);
        }
    }
}

/// The words of a file; of Rust without comments and texts, in which old names may live on.
fn words_in_code(source: &Source) -> Vec<String> {
    let lines = match source.is_rust() {
        true => scan::code_lines(&source.text),
        false => source.text.lines().map(str::to_owned).collect(),
    };
    let words = lines.iter().flat_map(|line| line.split(is_no_word));
    words.map(str::to_owned).collect()
}

/// The part of a quoted name, file, folder or crate that does not exist. Commands, which have
/// blanks, have tests of their own; functions of libfabric (`fi_send`) are not ours.
fn missing<'a>(quoted: &'a str, words: &BTreeSet<String>, sources: &[Source]) -> Option<&'a str> {
    let is_path = quoted.contains(['/', '-']) || quoted.ends_with(".rs") || quoted.ends_with(".md");
    if quoted.contains(char::is_whitespace) || quoted.starts_with("fi_") {
        return None;
    }
    if is_path {
        let (inside, end) = (format!("/{}", quoted.trim_end_matches('/')), quoted);
        let folder = format!("{inside}/");
        let is_there = |path: &str| {
            let path = format!("/{path}");
            path.ends_with(&inside) || path.contains(&folder)
        };
        return (!sources.iter().any(|s| is_there(&s.path))).then_some(end);
    }
    let mut names = quoted.split("::").map(|name| name.trim_end_matches("()"));
    names.find(|name| !words.contains(*name))
}

/// Every text between backquotes, also over the end of a line, and every name with `::` or `_` in
/// a picture, with the number of its line.
fn quotations(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut at) = (Vec::new(), 1);
    for (n, part) in text.split("```").enumerate() {
        let names = part.split(|c| is_no_word(c) && c != ':');
        let pictured = names.filter(|name| name.contains("::") || name.contains('_'));
        let quoted: Vec<&str> = match n % 2 {
            0 => part.split('`').skip(1).step_by(2).collect(),
            _ => pictured.map(|name| name.trim_end_matches(':')).collect(),
        };
        for text in quoted {
            let before = text.as_ptr() as usize - part.as_ptr() as usize;
            found.push((at + part[..before].matches('\n').count(), text));
        }
        at += part.matches('\n').count();
    }
    found
}

/// Checks that rows "`crate` | `folder/` …" name exactly the crate's folders.
fn folders(document: &Source, sources: &[Source], report: &mut Report) {
    for (at, line) in document.text.lines().enumerate() {
        let Some((of, row)) = line.strip_prefix('`').and_then(|l| l.split_once("` |")) else {
            continue;
        };
        let quoted = row.split('`').skip(1).step_by(2);
        let named: BTreeSet<&str> = quoted.filter_map(|q| q.strip_suffix('/')).collect();
        let src = format!("crates/{of}/src/");
        let inside = sources.iter().filter_map(|s| s.path.strip_prefix(&*src));
        let there: BTreeSet<&str> = inside.filter_map(|p| Some(p.split_once('/')?.0)).collect();
        // A row without folders belongs to another table.
        if !named.is_empty() {
            for folder in named.symmetric_difference(&there) {
                let text = format!("{ARCHITECTURE}:{}: {src}{folder} is in one of both", at + 1);
                report.complaints.push(text);
            }
        }
    }
}

fn is_no_word(c: char) -> bool {
    !(c.is_alphanumeric() || c == '_')
}

/// Documents and document folders that a line names relative to the repository's root, as
/// `docs/rails.md`.
fn named_documents(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("docs/").filter_map(|(at, _)| {
        // After a slash the path is relative to another place.
        if line[..at].ends_with(|c: char| c == '/' || !is_no_word(c)) {
            return None;
        }
        let is_path = |c: char| !is_no_word(c) || "/-.".contains(c);
        let end = line[at..]
            .find(|c| !is_path(c))
            .map_or(line.len(), |n| at + n);
        let path = line[at..end].trim_end_matches(['.', '/']);
        path.contains('/').then_some(path)
    })
}

/// Targets of links in a line of a document, relative to the repository's root.
fn links(source: &Source, line: &str) -> Vec<String> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = source
        .path
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let targets = line.match_indices("](").filter_map(|(at, _)| {
        let target = line[at + 2..].split([')', '#']).next()?;
        let is_file = target.ends_with(".md") && !target.contains(':');
        is_file.then(|| joined(folder, target))
    });
    targets.collect()
}

/// `target` relative to `folder`.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut sources = vec![
            source("crates/a/src/b.rs", "fn there(_: Any) {} // in_a_comment"),
            source(&format!("docs/{}", "design/c.md"), ""),
        ];
        sources.push(source(path, text));
        if path != ARCHITECTURE {
            sources.push(source(ARCHITECTURE, ""));
        }
        let mut report = Report::default();
        check(&sources, &mut report);
        report.complaints
    }

    #[test]
    fn names_are_held_against_the_code() {
        assert!(complaints(ARCHITECTURE, "`Any::there`, `x y`, `there()`").is_empty());
        assert!(complaints(ARCHITECTURE, "`b.rs`, `src/`, `crates/a`\n`there`").is_empty());
        assert!(complaints(ARCHITECTURE, "```\nAny::there: some-thing\n```").is_empty());
        for gone in [
            "gone",
            "Gone::there",
            "Any::gone",
            "c.rs",
            "a/c",
            "in_a_comment",
        ] {
            let found = complaints(ARCHITECTURE, &format!("`{gone}`"));
            assert_eq!(found.len(), 1, "{gone}");
        }
        assert_eq!(complaints(ARCHITECTURE, "```\nAny::gone\n```").len(), 1);
        assert_eq!(complaints(ARCHITECTURE, "`over\nlines`, `gone`").len(), 1);
        assert_eq!(complaints(ARCHITECTURE, "`there` | things").len(), 0);
        // There is neither such a folder nor one in the crate `there`.
        assert_eq!(complaints(ARCHITECTURE, "`there` | `c/`").len(), 2);
    }

    #[test]
    fn the_glossary_names_files_and_folders() {
        assert!(complaints(GLOSSARY, "`a/b`, `word`").is_empty());
        assert_eq!(complaints(GLOSSARY, "`a/c`, `a/b`").len(), 1);
    }

    #[test]
    fn documents_that_are_named_have_to_be_there() {
        let docs = |text: &str| text.replace('~', "docs/");
        let there = docs("(~design/c.md), /../~x.md, my~x.md, ~design, ~design/");
        assert!(complaints("crates/a/src/d.rs", &there).is_empty());
        assert_eq!(
            complaints("crates/a/src/d.rs", &docs("see ~x.md, ~x")).len(),
            2
        );
        let links = "[a](design/c.md#b) [c](https://x.org/y.md)";
        assert!(complaints(&docs("~d.md"), links).is_empty());
        let links = "[a](../c.md), [b](c.md)";
        assert_eq!(complaints(&docs("~design/d.md"), links).len(), 1);
    }
}
