//! Checks the direction of imports: auth, wire, checksum <- proto, rails <- engine <- provider,
//! sim, cli.

use crate::sources::{Report, Source};

/// The workspace's crates that each crate may import. `proto` must not import `rails`, no crate may
/// import `provider`.
const MAY_IMPORT: [(&str, &[&str]); 15] = [
    ("codes", &[]),
    ("auth", &[]),
    ("wire", &[]),
    ("checksum", &[]),
    ("proto", &["wire"]),
    ("rails", &["auth", "wire"]),
    (
        "engine",
        &["codes", "auth", "wire", "checksum", "proto", "rails"],
    ),
    ("version", &["wire"]),
    ("provider", &["codes", "engine", "version"]),
    ("symbols", &[]),
    ("mpi-shim", &["codes", "symbols"]),
    ("collectives", &["codes", "symbols"]),
    ("demo-rank", &[]),
    (
        "sim",
        &[
            "codes", "auth", "wire", "checksum", "proto", "rails", "engine",
        ],
    ),
    (
        "cli",
        &[
            "codes",
            "auth",
            "wire",
            "checksum",
            "rails",
            "engine",
            "version",
            "demo-rank",
        ],
    ),
];

/// Checks every `crates/*/Cargo.toml`, and that the table has every crate.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    for source in sources {
        let manifest = source.path.strip_prefix("crates/");
        let Some(name) = manifest.and_then(|p| p.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(n, _)| *n == name) else {
            let text = format!("{}: say in xtask what it may import", source.path);
            report.complaints.push(text);
            continue;
        };
        for imported in ours(&source.text) {
            if !allowed.contains(&imported) {
                let text = format!("{}: {name} must not import {imported}", source.path);
                report.complaints.push(text);
            }
        }
    }
}

/// The workspace's crates among a manifest's dependencies of every kind.
fn ours(manifest: &str) -> impl Iterator<Item = &str> {
    let mut depends = false;
    manifest.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            // `[dependencies.marline-x]` names the crate in the section's title.
            depends = section.contains("dependencies");
            let named = section.split_once("dependencies.marline-");
            return named.map(|(_, rest)| rest.trim_end_matches(']'));
        }
        let name = line.strip_prefix("marline-").filter(|_| depends)?;
        Some(name.split(['.', ' ', '=']).next().unwrap_or(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut report = Report::default();
        check(&[Source { path, text }], &mut report);
        report.complaints.len()
    }

    #[test]
    fn the_wrong_way_is_noticed() {
        let proto = "crates/proto/Cargo.toml";
        assert_eq!(
            complaints(proto, "[dependencies]\nmarline-wire.workspace = true\n"),
            0
        );
        assert_eq!(
            complaints(proto, "[dependencies]\nmarline-rails.workspace = true\n"),
            1
        );
        assert_eq!(
            complaints(
                proto,
                "[dev-dependencies]\nmarline-engine = { path = \"\" }\n"
            ),
            1
        );
        assert_eq!(
            complaints(proto, "[target.x.dependencies.marline-sim]\n"),
            1
        );
        assert_eq!(complaints(proto, "[features]\nmarline-rails = []\n"), 0);
        assert_eq!(complaints("crates/other/Cargo.toml", ""), 1);
    }
}
