//! The text files of the repository, and the report of the checks.

use std::fs;
use std::path::{Path, PathBuf};

/// The results of `tidy`.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of files read.
    pub files: usize,
    /// Violations, as `path:line: text`.
    pub complaints: Vec<String>,
    /// Limits that can be lowered.
    pub notes: Vec<String>,
}

/// A text file of the repository.
pub(crate) struct Source {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    /// A Rust source file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Folders with hand-written text.
const PLACES: [&str; 9] = [
    "crates", "fuzz", "xtask", "tests", "bench", "scripts", "docs", ".ci", ".cargo",
];

/// Reads every hand-written text file under `root`, sorted by path.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>, String> {
    let mut paths: Vec<PathBuf> = PLACES.iter().map(|p| root.join(p)).collect();
    // In a linked worktree `.git` is a file.
    let ours = |p: &PathBuf| p.is_file() && !p.ends_with(".git");
    paths.extend(list(root)?.into_iter().filter(ours));
    let mut sources = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            // Build outputs and fuzzers' findings are not hand-written.
            let made = ["__pycache__", "target", "corpus", "artifacts"];
            let by_people = |p: &PathBuf| !made.iter().any(|name| p.ends_with(name));
            paths.extend(list(&path)?.into_iter().filter(by_people));
            continue;
        }
        // Files that are not UTF-8 are not hand-written; files may vanish meanwhile.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let name = path.strip_prefix(root).unwrap_or(&path);
        let path = name.to_string_lossy().replace('\\', "/");
        sources.push(Source { path, text });
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(entries.filter_map(|e| Some(e.ok()?.path())).collect())
}
