//! The house rules as a program, so that nobody has to remember them: which crate and which folder
//! may import which, that no files import each other in circles, how comments begin, where `unsafe`
//! is forbidden, how long files, functions and lines may be, that nothing is left half done, and
//! that `ARCHITECTURE.md` names what there is.
//!
//! `cargo xtask tidy` prints the complaints; a test runs the same in `cargo test`. What clippy
//! and rustfmt check already is left to them. No dependencies: it must build in a second.
#![forbid(unsafe_code)]

mod circles;
mod documents;
mod english;
mod imports;
mod limits;
mod map;
mod modules;
mod paths;
mod rules;
mod scan;
mod sources;

use sources::read_all;
pub use sources::Report;
use std::path::{Path, PathBuf};

/// The repository that this crate is part of.
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
    map::check(&sources, &mut report);
    documents::check(&sources, &mut report);
    for source in &sources {
        rules::check(source, &mut report);
    }
    limits::check(&sources, &mut report);
    circles::check(&sources, &mut report);
    english::check(&sources, &mut report);
    Ok(report)
}

/// The circles of files that import each other, crate by crate, with what ties them.
pub fn circles(root: &Path) -> Result<String, String> {
    Ok(circles::describe(&read_all(root)?))
}

/// Every source file whose path begins with `under`, with the first sentence of its description.
pub fn map(root: &Path, under: &str) -> Result<String, String> {
    Ok(map::describe(&read_all(root)?, under))
}
