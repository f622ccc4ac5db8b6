//! The files of a crate as Rust modules, and their imports of each other.
//!
//! An import is a `use` declaration or a qualified path that leads to another file of the same
//! crate. A reexported name (`pub use`) leads to the file that defines it. Method calls are not
//! followed: a file with an `impl` for a type imports the type's file, and callers of the method do
//! not import the file of the `impl`. Tests are ignored.

use crate::paths::{read, Import, Outline};
use crate::sources::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum of reexports followed to a definition.
const HANDED_ON_MAX: usize = 8;

/// The source files of one crate, without its tests.
pub(crate) struct Crate<'a> {
    /// The folder of the sources, as `crates/proto/src`.
    pub root: &'a str,
    /// Paths below `root`, in order.
    pub files: Vec<&'a str>,
    outlines: Vec<Outline>,
    by_module: BTreeMap<Vec<String>, usize>,
}

/// All crates with a `src` folder among the sources.
pub(crate) fn crates(sources: &[Source]) -> Vec<Crate<'_>> {
    let mut by_root: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.is_rust()) {
        if let Some(at) = source.path.find("/src/") {
            let (root, file) = (&source.path[..at + 4], &source.path[at + 5..]);
            by_root.entry(root).or_default().push((file, &source.text));
        }
    }
    let new = |(root, files): (_, Vec<_>)| Crate::new(root, &files);
    by_root.into_iter().map(new).collect()
}

impl<'a> Crate<'a> {
    /// A crate from its files and their texts.
    fn new(root: &'a str, files: &[(&'a str, &str)]) -> Self {
        let library = files.iter().any(|(file, _)| *file == "lib.rs");
        // Beside a library, the binary is a separate crate.
        let part = |file: &str| !(is_test(file) || library && file == "main.rs");
        let (mut names, mut outlines) = (Vec::new(), Vec::new());
        let mut by_module = BTreeMap::new();
        for (file, text) in files.iter().filter(|(file, _)| part(file)) {
            by_module.insert(module_of(file), names.len());
            names.push(*file);
            outlines.push(read(text));
        }
        Self {
            root,
            files: names,
            outlines,
            by_module,
        }
    }

    /// The imported files of each file, with the names imported from each.
    pub fn imports(&self) -> Vec<BTreeMap<usize, BTreeSet<String>>> {
        let of = |at: usize| {
            let mut found: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
            for path in self.outlines[at].paths() {
                let home = module_of(self.files[at]);
                let Some(absolute) = self.absolute(&home, path, at) else {
                    continue;
                };
                let (target, name) = self.define(absolute, HANDED_ON_MAX);
                if target != at {
                    found.entry(target).or_default().insert(name);
                }
            }
            found
        };
        (0..self.files.len()).map(of).collect()
    }

    /// `path`, as written in file `at` of module `home`, from the crate's root; `None` if it leads
    /// out of the crate.
    fn absolute(&self, home: &[String], path: &Import, at: usize) -> Option<Vec<String>> {
        let mut module = [home, &path.inside].concat();
        let mut rest = &path.segments[..];
        match rest.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [home, &[first.to_owned()]].concat();
                if !self.by_module.contains_key(&child) {
                    let used = self.outlines[at].used_as(first)?;
                    // A self-referential alias is the name of another crate.
                    if used.segments[0] == first {
                        return None;
                    }
                    let base = self.absolute(home, used, at)?;
                    return Some([&base, &rest[1..]].concat());
                }
                module = home.to_vec();
            }
        }
        Some([&module, rest].concat())
    }

    /// The file that defines the item at `path`, and the item's name.
    fn define(&self, path: Vec<String>, steps: usize) -> (usize, String) {
        let module = |n: &usize| self.by_module.contains_key(&path[..*n]);
        let known = (0..=path.len()).rev().find(module).unwrap_or(0);
        let at = self.by_module.get(&path[..known]).copied().unwrap_or(0);
        let name = || path.last().cloned().unwrap_or_default();
        let Some(item) = path.get(known) else {
            return (at, name());
        };
        let outline = &self.outlines[at];
        if steps == 0 || outline.defines(item) {
            return (at, name());
        }
        let home = &path[..known];
        if let Some(used) = outline.used_as(item) {
            if let Some(base) = self.absolute(home, used, at) {
                return self.define([&base, &path[known + 1..]].concat(), steps - 1);
            }
        }
        for glob in outline.globs() {
            let Some(base) = self.absolute(home, glob, at) else {
                continue;
            };
            let (target, _) = self.define(base.clone(), steps - 1);
            if self.outlines[target].defines(item) {
                return (target, name());
            }
        }
        (at, name())
    }
}

/// True for files with tests only, by name.
fn is_test(file: &str) -> bool {
    let stem = file.trim_end_matches(".rs");
    stem.ends_with("_test") || stem.ends_with("_tests") || stem.split('/').any(|p| p == "tests")
}

/// The module path of a file below `src`.
fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let mut path: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod"))
        || path.len() == 1 && matches!(stem, "lib" | "main")
    {
        path.pop();
    }
    path
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The imports of a crate of these files, as `from>to`.
    pub(crate) fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let of = Crate::new("crates/a/src", files);
        let mut found = Vec::new();
        for (from, targets) in of.imports().iter().enumerate() {
            for to in targets.keys() {
                found.push(format!("{}>{}", of.files[from], of.files[*to]));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn paths_lead_to_files() {
        let lib = ("lib.rs", "mod a; mod b; mod c; mod main;");
        let leaf = ("b.rs", "pub fn f() {}");
        let from_a = |text| arrows(&[lib, ("a.rs", text), leaf, ("c/mod.rs", ""), ("c/d.rs", "")]);
        assert_eq!(from_a("use crate::b::f;"), ["a.rs>b.rs"]);
        assert_eq!(from_a("use crate::b::*;"), ["a.rs>b.rs"]);
        assert_eq!(
            from_a("use super::{b::{f as g}, c};"),
            ["a.rs>b.rs", "a.rs>c/mod.rs"]
        );
        assert_eq!(from_a("fn x() { super::b::f() }"), ["a.rs>b.rs"]);
        assert_eq!(
            from_a("use super::c; type T = c::d::E;"),
            ["a.rs>c/d.rs", "a.rs>c/mod.rs"]
        );
        assert!(
            from_a("use std::b::f; // crate::b::f\n#[cfg(test)] mod t { use crate::b; }")
                .is_empty()
        );
        assert!(from_a("macro_rules! m { () => { $crate::b::f() } }").is_empty());
        assert!(from_a("mod inner { use super::x; } #[cfg(test)] use crate::b::f;").is_empty());
    }

    #[test]
    fn reexports_lead_to_the_definition() {
        let face = ("lib.rs", "mod a; mod b; pub use b::Thing; pub use a::*;");
        let user = ("c.rs", "use crate::{Thing, Other};");
        let arrows = arrows(&[
            face,
            ("a.rs", "pub enum Other {}"),
            ("b.rs", "struct Thing;"),
            user,
        ]);
        assert_eq!(arrows, ["c.rs>a.rs", "c.rs>b.rs"]);
    }
}
