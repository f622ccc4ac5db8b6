//! The table at the end of a run: one line per rail, from the statistics that the ranks left.

use crate::mpi::Kind;
use crate::stats_dir::{StatsDir, STATS_DIR};
use crate::tool;
use marline_engine::stats::reader::{self, JobPage};
use marline_engine::stats::summary::{format_summary, Summary};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Prints the table on standard error: standard output belongs to the program, which ended with
/// `status`.
pub fn print_summary(dir: &StatsDir, status: u8, mpi: Kind) {
    let mut pages = Vec::new();
    for path in dir.new_pages() {
        match reader::read_page(&path) {
            Ok(page) => pages.push(page),
            Err(error) => tool::say(&error),
        }
    }
    let summary = Summary::of(&pages);
    let mut text = format_summary(&summary);
    if summary.processes == 0 && status == 0 {
        text += said_of_nothing(mpi);
    }
    text += &said_of_versions(&summary);
    text += &said_of_absent(&pages);
    // Nobody may read it any more, and the exit status is the program's all the same.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Why a program that went well may have used no rail: Open MPI uses Marline inside a host, too.
fn said_of_nothing(mpi: Kind) -> &'static str {
    match mpi {
        Kind::Mpich | Kind::Intel => {
            "Marline: its ranks were on one host and used the MPI's shared memory (--no-shm), the \
             program was built for another MPI than its mpiexec, or options of mpiexec chose \
             another transport\n"
        }
        Kind::OpenMpi5 | Kind::OpenMpi4 => {
            "Marline: the program was built for another MPI than its mpiexec, or options of \
             mpiexec (--mca) chose another transport\n"
        }
    }
}

/// A line about packets of another version, on which hosts do not understand each other.
fn said_of_versions(summary: &Summary) -> String {
    let rails = summary.rails.iter();
    match rails.map(|rail| rail.counters.wrong_version).sum::<u64>() {
        0 => String::new(),
        packets => format!(
            "Marline: {packets} packets arrived in another version of the protocol: is the library \
             the same on all hosts?\n"
        ),
    }
}

/// A line about processes without a page, which the table therefore lacks; empty when none is
/// known of. An MPI has one endpoint per process, unless it is told otherwise.
fn said_of_absent(pages: &[JobPage]) -> String {
    let peers = pages.iter().flat_map(|page| &page.peers);
    let known: BTreeSet<u64> = peers.map(|peer| peer.endpoint).collect();
    // A page's own endpoint has no paths, if it is a peer at all.
    let others = |page: &JobPage| {
        page.peers
            .iter()
            .filter(|peer| !peer.paths.is_empty())
            .count()
    };
    let with_others = pages.iter().map(others).max().map(|others| match others {
        0 => 0,
        others => others + 1,
    });
    let endpoints = known.len().max(with_others.unwrap_or(0));
    let present = pages.iter().filter(|page| !page.peers.is_empty()).count();
    match endpoints.saturating_sub(present) {
        0 => String::new(),
        absent => format!(
            "Marline: {absent} of {endpoints} endpoints left no statistics here and are not in \
             this table; if they were on other hosts, set {STATS_DIR} to a directory that all \
             hosts share\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::reader::PeerRow;

    #[test]
    fn a_directory_of_ours_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt;
        let dir = StatsDir::open(None).unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        print_summary(&dir, 0, Kind::Mpich);
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn packets_of_another_version_are_told() {
        use marline_engine::stats::reader::RailRow;
        let mut rail = RailRow::default();
        let page = |rail: &RailRow| JobPage {
            rails: vec![rail.clone()],
            peers: vec![PeerRow::default()],
            ..JobPage::default()
        };
        let said = |rail: &RailRow| said_of_versions(&Summary::of(&[page(rail), page(rail)]));
        assert_eq!(said(&rail), "");
        rail.counters.wrong_version = 3;
        assert!(said(&rail).contains("6 packets"), "{}", said(&rail));
    }

    #[test]
    fn processes_without_a_page_are_counted() {
        use marline_engine::stats::page::PathRow;
        let page = |own: u64, peers: &[u64]| {
            let row = |&endpoint: &u64| PeerRow {
                endpoint,
                paths: vec![PathRow::default(); usize::from(endpoint != own)],
                ..PeerRow::default()
            };
            JobPage {
                peers: peers.iter().map(row).collect(),
                ..JobPage::default()
            }
        };
        let looked_around = page(1, &[]);
        let all = |pages: &[JobPage]| said_of_absent(pages).is_empty();
        assert!(all(&[
            page(1, &[1, 2]),
            page(2, &[2, 1]),
            looked_around.clone()
        ]));
        assert!(all(&[page(1, &[2]), page(2, &[1])]));
        assert!(all(&[page(1, &[1])]), "alone, with messages to itself");
        assert!(all(&[looked_around]) && all(&[]));
        let said = said_of_absent(&[page(1, &[2])]);
        assert!(said.contains("1 of 2 endpoints"), "{said}");
        let said = said_of_absent(&[page(1, &[1, 2, 3, 4]), page(2, &[1, 2, 3])]);
        assert!(said.contains("2 of 4 endpoints"), "{said}");
    }
}
