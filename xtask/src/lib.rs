//! Checks the house rules: allowed imports between crates and folders, no import cycles among
//! files, openings of comments, where `unsafe` is forbidden, lengths of files, functions and lines,
//! messages with codes, no unfinished work, test files that run, and names in `ARCHITECTURE.md`
//! that exist.
//!
//! `cargo xtask tidy` prints the violations; `cargo test` runs the same checks. Rules of clippy and
//! rustfmt are left to them. No dependencies, so that the crate builds in a second.
#![forbid(unsafe_code)]

mod bundles;
mod circles;
mod documents;
mod english;
mod imports;
mod limits;
mod map;
mod messages;
mod modules;
mod paths;
mod retired;
mod rules;
mod scan;
mod sources;

use sources::read_all;
pub use sources::Report;
use std::path::{Path, PathBuf};

/// The root directory of this repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Checks everything under `root`.
pub fn tidy(root: &Path) -> Result<Report, String> {
    let sources = read_all(root)?;
    let mut report = Report {
        files: sources.len(),
        ..Report::default()
    };
    imports::check(&sources, &mut report);
    bundles::check(&sources, &mut report);
    map::check(&sources, &mut report);
    documents::check(&sources, &mut report);
    for source in &sources {
        rules::check(source, &mut report);
        messages::check(source, &mut report);
        retired::check(source, &mut report);
    }
    limits::check(&sources, &mut report);
    circles::check(&sources, &mut report);
    english::check(&sources, &mut report);
    Ok(report)
}

/// The import cycles of files by crate, with the names that cause them.
pub fn circles(root: &Path) -> Result<String, String> {
    Ok(circles::describe(&read_all(root)?))
}

/// Every source file whose path begins with `under`, with the first sentence of its description.
pub fn map(root: &Path, under: &str) -> Result<String, String> {
    Ok(map::describe(&read_all(root)?, under))
}
