//! Checks imports inside a crate: no import cycles among files, and imports only from upper rooms
//! (folders) to lower ones.

use crate::limits::one;
use crate::modules::{crates, Crate};
use crate::sources::{Report, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Allowed number of files in import cycles per crate. Numbers only decrease.
const IN_CIRCLES: &[(&str, usize)] = &[];

/// The rooms of a crate, lowest first: files and folders directly below `src`. A room may import
/// the rooms before it. `lib.rs` is the crate's API and outside the order.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "crates/engine/src",
        &[
            "api", "platform", "config", "stats", "memory", "state", "core", "progress", "open",
            "engine",
        ],
    ),
    (
        "crates/proto/src",
        &[
            "base", "group", "state", "outgoing", "incoming", "node", "rx", "tx", "message", "rma",
            "path", "recovery", "peer", "testing",
        ],
    ),
    (
        "crates/sim/src",
        &[
            "base", "machine", "setup", "truth", "network", "world", "traffic", "app", "check",
            "inject", "group", "scale", "run", "main",
        ],
    ),
];
/// Allowed number of imports from a lower room to an upper one. Numbers only decrease.
const UPWARD: &[(&str, usize)] = &[
    ("crates/engine/src", 0),
    ("crates/proto/src", 0),
    ("crates/sim/src", 0),
];

type Arrows = Vec<BTreeMap<usize, BTreeSet<String>>>;

/// Checks every crate.
pub(crate) fn check(sources: &[Source], report: &mut Report) {
    for of in crates(sources) {
        let arrows = of.imports();
        let circles = circles(&arrows);
        let files = circles.iter().map(Vec::len).sum();
        one(
            report,
            IN_CIRCLES,
            of.root,
            files,
            0,
            "files in circles (`cargo xtask circles` shows them)",
        );
        if let Some((_, rooms)) = ROOMS.iter().find(|(root, _)| *root == of.root) {
            check_rooms(&of, &arrows, rooms, report);
        }
    }
}

/// The import cycles of all crates with the names that cause them, and imports of upper rooms, as
/// text.
pub(crate) fn describe(sources: &[Source]) -> String {
    let mut text = String::new();
    for of in crates(sources) {
        let arrows = of.imports();
        let circles = circles(&arrows);
        let files: usize = circles.iter().map(Vec::len).sum();
        let (n, root) = (circles.len(), of.root);
        let _ = writeln!(text, "{root}: {n} circles of {files} files");
        for circle in circles {
            let names: Vec<&str> = circle.iter().map(|at| of.files[*at]).collect();
            let _ = writeln!(text, "  circle of {}: {}", names.len(), names.join(", "));
            for from in &circle {
                for (to, names) in arrows[*from].iter().filter(|(to, _)| circle.contains(to)) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let (from, to) = (of.files[*from], of.files[*to]);
                    let _ = writeln!(text, "    {from} -> {to}: {}", names.join(", "));
                }
            }
        }
        if let Some((_, rooms)) = ROOMS.iter().find(|(root, _)| *root == of.root) {
            for up in upward(&of, &arrows, rooms) {
                let _ = writeln!(text, "  up: {up}");
            }
        }
    }
    text
}

fn check_rooms(of: &Crate, arrows: &Arrows, rooms: &[&str], report: &mut Report) {
    for file in &of.files {
        let room = room_of(file);
        if file.contains('/') && !rooms.contains(&room) {
            let text = format!("{}/{file}: say in xtask where {room} stands", of.root);
            report.complaints.push(text);
        }
    }
    let found = upward(of, arrows, rooms).len();
    let what = "imports of an upper room (`cargo xtask circles` shows them)";
    one(report, UPWARD, of.root, found, 0, what);
}

/// The room of a file: the file or folder directly below `src`.
fn room_of(file: &str) -> &str {
    file.split('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".rs")
}

/// Imports from a lower room to an upper one.
fn upward(of: &Crate, arrows: &Arrows, rooms: &[&str]) -> Vec<String> {
    let floor = |at: usize| rooms.iter().position(|room| *room == room_of(of.files[at]));
    let mut found = Vec::new();
    for (from, targets) in arrows.iter().enumerate() {
        for (to, names) in targets {
            if let (Some(low), Some(high)) = (floor(from), floor(*to)) {
                if low < high {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let (from, to) = (of.files[from], of.files[*to]);
                    found.push(format!("{from} -> {to}: {}", names.join(", ")));
                }
            }
        }
    }
    found
}

/// Import cycles, as groups of two or more files that reach each other.
fn circles(arrows: &Arrows) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..arrows.len()).map(|at| reached(arrows, at)).collect();
    let mut found = Vec::new();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    for at in 0..arrows.len() {
        if seen.contains(&at) || !reach[at].contains(&at) {
            continue;
        }
        let back = |other: &usize| reach[*other].contains(&at);
        let circle: Vec<usize> = reach[at].iter().copied().filter(back).collect();
        seen.extend(circle.iter().copied());
        found.push(circle);
    }
    found
}

/// All files that `from` imports directly or indirectly.
fn reached(arrows: &Arrows, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open: Vec<usize> = arrows[from].keys().copied().collect();
    while let Some(at) = open.pop() {
        if found.insert(at) {
            open.extend(arrows[at].keys());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("crates/a/src/{path}"),
            text: (*text).to_owned(),
        };
        files.iter().map(source).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let mut report = Report::default();
        let (b, c) = (
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use super::d::D; struct C;"),
        );
        let (round, lib) = (
            ("d.rs", "use crate::b; struct D;"),
            ("lib.rs", "mod b; mod c; mod d;"),
        );
        check(&sources(&[lib, b, c, ("d.rs", "struct D;")]), &mut report);
        assert!(report.complaints.is_empty());
        check(&sources(&[lib, b, c, round]), &mut report);
        assert_eq!(report.complaints.len(), 1, "{:?}", report.complaints);
        assert!(describe(&sources(&[lib, b, c, round])).contains("circle of 3: b.rs, c.rs, d.rs"));
    }

    #[test]
    fn a_lower_room_imports_no_upper_one() {
        let files = [
            ("lib.rs", "mod low; mod up;"),
            ("low/mod.rs", "use crate::up::U; struct L;"),
            ("up.rs", "use crate::low::L; struct U;"),
        ];
        let sources = sources(&files);
        let of = &crates(&sources)[0];
        let found = upward(of, &of.imports(), &["low", "up"]);
        assert_eq!(found, ["low/mod.rs -> up.rs: U"]);
        assert!(upward(of, &of.imports(), &["up"]).is_empty());
    }
}
