//! Test binaries of several files: each file is a module of the binary's `main.rs`, since the
//! compiler says nothing of a file that no module names, and its tests would not run.

use crate::sources::{Report, Source};

/// Complains of files in the folder of a test binary that its `main.rs` does not name.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    for main in sources.iter().filter(|s| s.path.ends_with("/main.rs")) {
        let folder = main.path.trim_end_matches("main.rs");
        if !folder.contains("/tests/") {
            continue;
        }
        let files = sources.iter().filter_map(|s| s.path.strip_prefix(folder));
        let names = files.filter_map(|file| file.strip_suffix(".rs"));
        for name in names.filter(|name| *name != "main" && !name.contains('/')) {
            let declared = format!("mod {name};");
            if !main.text.lines().any(|line| line == declared) {
                let text =
                    format!("{folder}{name}.rs: not a module of main.rs, so it does not run");
                report.complaints.push(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_main_does_not_name_is_reported() {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source("crates/a/tests/all/main.rs", "mod listed;\n"),
            source("crates/a/tests/all/listed.rs", ""),
            source("crates/a/tests/all/unlisted.rs", ""),
            source("crates/a/tests/alone.rs", ""),
            source("crates/a/src/main.rs", ""),
            source("crates/a/src/other.rs", ""),
        ];
        let mut report = Report::default();
        check(&sources, &mut report);
        let expected =
            "crates/a/tests/all/unlisted.rs: not a module of main.rs, so it does not run";
        assert_eq!(report.complaints, [expected]);
    }
}
