//! Extracts the paths, `use` declarations and definitions of a source file.

use crate::scan::code_lines;
use std::collections::BTreeSet;

/// A path as written.
#[derive(Debug, Default)]
pub(crate) struct Import {
    pub segments: Vec<String>,
    /// Enclosing inline modules.
    pub inside: Vec<String>,
}

/// The names that a file uses and defines.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// Paths of two segments or more outside `use`.
    named: Vec<Import>,
    /// Names imported by `use`, each with its path and a flag for reexports.
    used: Vec<(String, Import, bool)>,
    /// Modules of glob imports, with a flag for reexports.
    globs: Vec<(Import, bool)>,
    defined: BTreeSet<String>,
    /// Every word outside `use`.
    words: BTreeSet<String>,
}

impl Outline {
    /// All paths that the file itself needs.
    pub fn paths(&self) -> impl Iterator<Item = &Import> {
        let own = |(name, _, handed_on): &&(String, Import, bool)| {
            !handed_on || self.words.contains(name)
        };
        let used = self.used.iter().filter(own).map(|(_, path, _)| path);
        let globs = self.globs.iter().filter(|(_, handed_on)| !handed_on);
        let globs = globs.map(|(path, _)| path);
        self.named.iter().chain(used).chain(globs)
    }

    /// The path of a name imported by `use`.
    pub fn used_as(&self, name: &str) -> Option<&Import> {
        let found = self.used.iter().find(|(n, _, _)| n == name);
        found.map(|(_, path, _)| path)
    }

    /// Modules of glob imports.
    pub fn globs(&self) -> impl Iterator<Item = &Import> {
        self.globs.iter().map(|(path, _)| path)
    }

    /// True if the file defines an item of this name.
    pub fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }
}

/// Reads a file without its tests.
pub(crate) fn read(text: &str) -> Outline {
    let code = code_lines(text).join("\n");
    let words = without_tests(tokens(&code));
    let mut reader = Reader {
        words: &words,
        at: 0,
        outline: Outline::default(),
        inside: Vec::new(),
        depth: 0,
    };
    reader.run();
    reader.outline
}

/// Splits code into words, `::`, and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let end = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        found.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    found
}

/// Removes items with an attribute `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn without_tests(tokens: Vec<&str>) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        let for_tests = rest.starts_with(&["#", "[", "cfg", "(", "test", ")"])
            || rest.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"]);
        if for_tests {
            at += item_length(rest);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The number of tokens to the end of the item that begins here: its `;`, or its closing brace.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" | "[" | "(" => depth += 1,
            "]" | ")" => depth -= 1,
            "}" => {
                depth -= 1;
                // `use a::{b};` ends at its `;`.
                let goes_on = tokens.get(at + 1) == Some(&";");
                if depth == 0 && !goes_on {
                    return at + 1;
                }
            }
            // The next field or variant, or the end of the enclosing list.
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
    }
    tokens.len()
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    outline: Outline,
    /// Open inline modules, with the depth of braces outside them.
    inside: Vec<(String, usize)>,
    depth: usize,
}

impl Reader<'_> {
    fn run(&mut self) {
        while let Some(word) = self.words.get(self.at) {
            match *word {
                "use" => self.take_use(),
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    let left = |(_, depth): &(_, usize)| *depth >= self.depth;
                    if self.inside.last().is_some_and(left) {
                        self.inside.pop();
                    }
                    self.at += 1;
                }
                "mod" if self.words.get(self.at + 2) == Some(&"{") => {
                    let name = self.words[self.at + 1].to_owned();
                    self.outline.defined.insert(name.clone());
                    self.inside.push((name, self.depth));
                    self.at += 2;
                }
                "struct" | "enum" | "union" | "trait" | "fn" | "const" | "static" | "type" => {
                    let name = self.words.get(self.at + 1).copied().unwrap_or_default();
                    let name = if name == "mut" {
                        self.words[self.at + 2]
                    } else {
                        name
                    };
                    self.outline.defined.insert(name.to_owned());
                    self.at += 1;
                }
                _ => self.take_path(),
            }
        }
    }

    fn inside(&self) -> Vec<String> {
        self.inside.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Reads a path, or skips one character.
    fn take_path(&mut self) {
        let mut segments = Vec::new();
        // `$crate::…` stands in a macro; the macro's users import the path.
        let inside = [".", "::", "'", "$"];
        let begins = self.at == 0 || !inside.contains(&self.words[self.at - 1]);
        while let Some(word) = self.words.get(self.at).filter(|w| is_word(w)) {
            segments.push((*word).to_owned());
            self.outline.words.insert((*word).to_owned());
            self.at += 1;
            if self.words.get(self.at) != Some(&"::") {
                break;
            }
            self.at += 1;
        }
        if segments.is_empty() {
            self.at += 1;
        } else if begins && segments.len() > 1 {
            let inside = self.inside();
            self.outline.named.push(Import { segments, inside });
        }
    }

    fn take_use(&mut self) {
        let before = self.at.checked_sub(1).map(|at| self.words[at]);
        // `pub use`, `pub(crate) use`.
        let handed_on = matches!(before, Some("pub" | ")"));
        self.at += 1;
        self.take_tree(&[], handed_on);
    }

    /// Reads one tree of a `use`, after `prefix`.
    fn take_tree(&mut self, prefix: &[String], handed_on: bool) {
        let mut segments = prefix.to_vec();
        while let Some(word) = self.words.get(self.at).copied() {
            self.at += 1;
            match word {
                "::" => {}
                "{" => {
                    while !matches!(self.words.get(self.at), None | Some(&"}")) {
                        self.take_tree(&segments, handed_on);
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    let inside = self.inside();
                    self.outline
                        .globs
                        .push((Import { segments, inside }, handed_on));
                    self.skip_comma();
                    return;
                }
                word if is_word(word) && word != "as" => {
                    segments.push(word.to_owned());
                    if self.words.get(self.at) != Some(&"::") {
                        self.end_name(segments, handed_on);
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    fn end_name(&mut self, mut segments: Vec<String>, handed_on: bool) {
        if segments.last().is_some_and(|s| s == "self") {
            segments.pop();
        }
        let mut name = segments.last().cloned().unwrap_or_default();
        if self.words.get(self.at) == Some(&"as") {
            name = self
                .words
                .get(self.at + 1)
                .map_or(name, |w| (*w).to_owned());
            self.at += 2;
        }
        let inside = self.inside();
        let path = Import { segments, inside };
        self.outline.used.push((name, path, handed_on));
        self.skip_comma();
    }

    fn skip_comma(&mut self) {
        self.at += usize::from(self.words.get(self.at) == Some(&","));
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}
