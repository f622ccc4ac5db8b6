//! Finds the commit: `MARLINE_COMMIT` in the environment, the file `.commit` of a source tarball,
//! or git, if the repository is this one.

use std::path::Path;
use std::process::Command;

/// Digits of the abbreviated commit.
const DIGITS: usize = 12;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-env-changed=MARLINE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("MARLINE_COMMIT").ok();
    let commit = given
        .or_else(|| of_tarball(&root))
        .or_else(|| of_git(&root));
    let commit = commit.map(|commit| commit.trim().chars().take(DIGITS).collect());
    let commit = commit.filter(|commit: &String| !commit.is_empty());
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    let (version, wire) = (env!("CARGO_PKG_VERSION"), marline_wire::VERSION);
    println!("cargo::rustc-env=MARLINE_VERSION_TEXT={version} (wire {wire}{commit})");
}

fn of_tarball(root: &Path) -> Option<String> {
    let file = root.join(".commit");
    let commit = std::fs::read_to_string(&file).ok()?;
    println!("cargo::rerun-if-changed={}", file.display());
    Some(commit)
}

fn of_git(root: &Path) -> Option<String> {
    let ask = |words: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(words)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Inside another project's repository git would report that project's commit.
    let top = std::fs::canonicalize(ask(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != std::fs::canonicalize(root).ok()? {
        return None;
    }
    // Changes with each commit and each switch of branches.
    let log = root.join(ask(&["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.is_file() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    ask(&["rev-parse", "HEAD"])
}
