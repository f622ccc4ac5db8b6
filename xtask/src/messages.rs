//! Messages for users have codes: standard error is written only where messages get theirs.

use crate::scan::code_lines;
use crate::sources::{Report, Source};

/// Crates whose messages users read.
const CRATES: [&str; 5] = ["cli", "collectives", "engine", "mpi-shim", "provider"];
/// The files that write to standard error: messages with codes, and reports.
const MAY_WRITE: [&str; 5] = [
    "crates/cli/src/run/summary.rs",
    "crates/cli/src/tool.rs",
    "crates/collectives/src/guard.rs",
    "crates/mpi-shim/src/matched.rs",
    "crates/provider/src/base/log.rs",
];
/// Ways to write there.
const WAYS: [&str; 3] = ["eprintln!", "eprint!", "io::stderr()"];

/// Checks one file.
pub(crate) fn check(source: &Source, report: &mut Report) {
    if !is_shipped(&source.path) || MAY_WRITE.contains(&&*source.path) {
        return;
    }
    for (at, line) in code_lines(&source.text).iter().enumerate() {
        if let Some(way) = WAYS.iter().find(|way| line.contains(**way)) {
            let path = &source.path;
            let text = format!("{path}:{}: {way}: make a message with a code", at + 1);
            report.complaints.push(text);
        }
    }
}

/// True for the source of a crate in [`CRATES`].
fn is_shipped(path: &str) -> bool {
    CRATES.iter().any(|name| {
        let inside = path.strip_prefix("crates/");
        let inside = inside.and_then(|p| p.strip_prefix(name));
        inside.is_some_and(|p| p.starts_with("/src/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut report = Report::default();
        check(&source, &mut report);
        report.complaints.len()
    }

    #[test]
    fn only_the_writers_of_messages_write_to_standard_error() {
        let text = "fn f() {\n    eprintln!(\"x\");\n}\n";
        assert_eq!(complaints("crates/cli/src/lab/mod.rs", text), 1);
        assert_eq!(complaints("crates/cli/src/tool.rs", text), 0);
        assert_eq!(complaints("crates/cli/tests/all/run.rs", text), 0);
        assert_eq!(complaints("crates/sim/src/main.rs", text), 0);
        assert_eq!(complaints("crates/cli/src/lab/mod.rs", "// eprintln!\n"), 0);
    }
}
