//! The summary of a run: a verdict and a line per rail, from the ranks' statistics.

use crate::json;
use crate::outcome::EXIT_REFUSED;
use crate::report::compose;
use crate::run::mpi::{Kind, Mpi};
use crate::run::stats_dir::{process, StatsDir, STATS_DIR};
use crate::stats::averages::averages;
use crate::stats::jobs::group;
use crate::tool;
use marline_codes::Code;
use marline_engine::stats::page::PEERS_MAX;
use marline_engine::stats::reader;
use marline_engine::stats::report::report;
use marline_engine::stats::rows::{JobPage, PeerRow};
use marline_engine::stats::summary::Summary;
use marline_engine::stats::text::{plural, wrap};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Options of the summary of a run.
#[derive(clap::Args, Default)]
pub struct SummaryArgs {
    /// Leave with status 125 if the program ended well and sent nothing over Marline.
    #[arg(long, env = "MARLINE_REQUIRE", value_parser = clap::builder::FalseyValueParser::new())]
    pub require: bool,
    /// Sum up only if Marline was not used, a peer died, or a protection was switched off.
    #[arg(short, long)]
    quiet: bool,
    /// Write the summary as JSON to FILE; without FILE as the last line of standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write a page for a browser to FILE: what happened, in words, tables and a timeline.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The run to summarise.
pub struct Ran<'a> {
    /// The MPI.
    pub mpi: &'a Mpi,
    /// True if Marline was to carry messages within a host, too.
    pub no_shm: bool,
    /// The exit status.
    pub status: u8,
    /// True for averages per process, too.
    pub verbose: bool,
}

/// The output of `marline run --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ended {
    /// The sums over the job's processes.
    #[serde(flatten)]
    summary: json::Summary,
    /// Endpoints that left no page here.
    endpoints_absent: usize,
    /// The program's exit status.
    program_status: u8,
}

/// Prints the summary to standard error, since standard output belongs to the program. Returns the
/// exit status.
pub fn finish(dir: &StatsDir, ran: &Ran<'_>, args: &SummaryArgs) -> u8 {
    let mut pages = Vec::new();
    for path in dir.new_pages() {
        match reader::read_page(&path) {
            Ok(page) if !dir.may_be_ours(&page) => {}
            Ok(page) => pages.push(page),
            Err(error) => tool::say(&Code::StatisticsUnreadable.message(error)),
        }
    }
    let summary = Summary::of(&pages);
    let full = match pages.is_empty() {
        true => dir.room().err(),
        false => None,
    };
    let mut text = String::new();
    if !(args.quiet && is_well(&summary)) {
        match &full {
            Some(why) => text += &wrap(&Code::StatisticsRoom.mark(&unknown(dir, why))),
            None => text += &report(&summary),
        }
        if summary.processes == 0 && ran.status == 0 && full.is_none() {
            text += &wrap(&why_unused(ran, summary.idle));
        }
        text += &remarks(&pages);
        if ran.verbose && summary.processes > 0 {
            text += &averages(pages.iter(), &summary);
        }
    }
    let refused = args.require && summary.processes == 0 && ran.status == 0;
    if refused {
        let found = match full {
            Some(_) => "nothing shows that anything was sent",
            None => "nothing was sent",
        };
        let said =
            format!("marline: {found} over Marline, which --require (MARLINE_REQUIRE) asks for");
        text += &(Code::NotUsed.mark(&said) + "\n");
    }
    if let Some(file) = &args.json {
        let ended = Ended {
            summary: json::Summary::from(&summary),
            endpoints_absent: absent(&pages).map_or(0, |(absent, _)| absent),
            program_status: ran.status,
        };
        text += &write_json(file, &ended);
    }
    if let Some(file) = &args.report {
        text += &write_report(file, pages);
    }
    // A closed standard error does not change the program's exit status.
    let _ = io::stderr().write_all(text.as_bytes());
    if refused {
        EXIT_REFUSED
    } else {
        ran.status
    }
}

/// True if the verdict needs no attention.
fn is_well(s: &Summary) -> bool {
    s.processes > 0 && s.dead.is_empty() && !s.is_unprotected()
}

/// Writes the summary to its file. Returns the text for standard error: the whole summary if the
/// file cannot be written, as the job cannot be repeated for it.
fn write_json(file: &Path, ended: &Ended) -> String {
    let line = match json::line(ended) {
        Ok(line) => line,
        Err(e) => return Code::Output.mark(&format!("marline: --json: {e}")) + "\n",
    };
    if file == Path::new("-") {
        return line;
    }
    let written = std::fs::write(file, &line);
    written.map_or_else(
        |e| {
            let file = file.display();
            let said = format!("marline: --json={file}: {e}; it is here instead");
            format!("{}\n{line}", Code::Output.mark(&said))
        },
        |()| String::new(),
    )
}

/// Writes the report to its file. Returns the text for standard error.
fn write_report(file: &Path, pages: Vec<JobPage>) -> String {
    let pages = pages.into_iter().map(|page| (PathBuf::new(), page));
    let report = compose::report(&group(pages.collect()));
    match compose::write_page(file, &report) {
        Ok(()) => String::new(),
        Err(e) => {
            let said = format!("marline: --report {}: {e}", file.display());
            Code::Output.mark(&said) + "\n"
        }
    }
}

/// The verdict if no process could leave a page.
fn unknown(dir: &StatsDir, why: &io::Error) -> String {
    format!(
        "Marline: UNKNOWN: no process on this host left statistics, as {} has no room for them \
         ({why}); set {STATS_DIR} to a directory that has",
        dir.path().display()
    )
}

/// Possible reasons why a successful program sent nothing; `opened` processes loaded the library.
fn why_unused(ran: &Ran<'_>, opened: usize) -> String {
    let own_memory = matches!(ran.mpi.kind, Kind::Mpich | Kind::Intel) && !ran.no_shm;
    let shared = "ranks of one host use the MPI's own shared memory (--no-shm has Marline carry \
                  these messages, too)";
    let foreign = format!(
        "the program was built for another MPI than {}",
        ran.mpi.describe()
    );
    let alone = format!("it was one process, or {foreign}, so that each rank ran alone");
    let had_opened = plural(
        opened as u64,
        "process had opened it",
        "processes had opened it",
    );
    match (opened, own_memory) {
        (0, _) => {
            let shared = if own_memory {
                format!("{shared}; or ")
            } else {
                String::new()
            };
            format!(
                "No process on this host has opened it: {shared}{foreign}; or something chose \
                 another transport; or all ranks were on other hosts, or in containers with a \
                 /dev/shm of their own (for their summary set FI_MARLINE_SUMMARY=on, or \
                 {STATS_DIR} to a directory that all of them see)."
            )
        }
        (_, true) => format!("{had_opened}: {shared}; or {alone}."),
        (_, false) => {
            format!("{had_opened} and had nobody to send to: {alone}.")
        }
    }
}

/// Remarks on processes missing in the table and on incompatible versions.
pub fn remarks(pages: &[JobPage]) -> String {
    said_of_left(pages) + &said_of_versions(pages) + &said_of_absent(pages) + &said_of_sums(pages)
}

/// A line about processes that were killed or left without goodbye.
fn said_of_left(pages: &[JobPage]) -> String {
    let left = pages.iter().filter(|page| page.is_left_behind());
    let mut ranks: Vec<String> = left.map(process).collect();
    ranks.dedup();
    match &ranks[..] {
        [] => String::new(),
        [first, others @ ..] => {
            let more = match others.len() {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            let text = format!("Marline: {first}{more} ended without MPI_Finalize, as if killed");
            wrap(&Code::Killed.mark(&text))
        }
    }
}

/// A line about peers or paths without rows for lack of room. Departed peers, as of MPI_Comm_spawn,
/// have no rows either and need no remark.
fn said_of_sums(pages: &[JobPage]) -> String {
    let full = pages.iter().filter(|page| is_full(page));
    let beyond = full.map(|page| page.peers_beyond).sum::<u64>();
    match (
        beyond,
        pages.iter().map(|page| page.peers_summed).sum::<u64>(),
    ) {
        (0, 0) => String::new(),
        (beyond, summed) => wrap(&format!(
            "Marline: pages had no room for all: {beyond} peers are counted together, and of \
             {summed} the paths of each rail"
        )),
    }
}

/// True if there was no room for a row for each peer and path.
fn is_full(page: &JobPage) -> bool {
    page.peers.len() >= PEERS_MAX || page.peers_summed > 0
}

/// A line about packets of other versions, whose hosts cannot communicate.
fn said_of_versions(pages: &[JobPage]) -> String {
    let rails = pages.iter().flat_map(|page| &page.rails);
    let packets = rails.map(|rail| rail.counters.wrong_version);
    match packets.fold(0, u64::saturating_add) {
        0 => String::new(),
        packets => {
            let text = format!(
                "Marline: {packets} packets arrived in another version of the protocol: is the \
                 library the same on all hosts?"
            );
            wrap(&Code::VersionsDiffer.mark(&text))
        }
    }
}

/// A line about processes without a page, which are missing from the table; empty if none is known.
fn said_of_absent(pages: &[JobPage]) -> String {
    absent(pages).map_or(String::new(), |(absent, processes)| {
        wrap(&format!(
            "Marline: {absent} of {processes} processes left no statistics here and are not in \
             this table; if they were on other hosts, set {STATS_DIR} to a directory that all \
             hosts share"
        ))
    })
}

/// The number of processes without a page, and of all. A process has several endpoints, and its
/// peers may know it by different addresses. Pages list the endpoints of their process; endpoints
/// on no page that have the same address count as one process.
fn absent(pages: &[JobPage]) -> Option<(usize, usize)> {
    let present = pages.iter().filter(|page| !page.peers.is_empty());
    let present: Vec<&JobPage> = present.collect();
    let own: BTreeSet<u64> = pages.iter().flat_map(|p| p.endpoints.clone()).collect();
    let rows = || present.iter().flat_map(|page| &page.peers);
    let here: BTreeSet<&str> = rows()
        .filter(|peer| own.contains(&peer.endpoint))
        .map(|peer| peer.address.as_str())
        .collect();
    let strange = |peer: &&PeerRow| {
        !own.contains(&peer.endpoint) && (peer.address.is_empty() || !here.contains(&*peer.address))
    };
    let absent = processes_of(rows().filter(strange));
    let processes = present.iter().map(|page| page.process_key());
    // A page without a process number counts as one process.
    let nameless = processes.clone().filter(Option::is_none).count();
    let named = processes.flatten().collect::<BTreeSet<_>>().len();
    (absent > 0).then_some((absent, nameless + named + absent))
}

/// The number of processes behind rows without a page: rows with the same endpoint or address are
/// one process.
fn processes_of<'a>(rows: impl Iterator<Item = &'a PeerRow>) -> usize {
    let mut by_endpoint: BTreeMap<u64, usize> = BTreeMap::new();
    let mut by_address: BTreeMap<&str, usize> = BTreeMap::new();
    let mut count = 0;
    for row in rows {
        let known = by_endpoint.get(&row.endpoint);
        let at = known.or_else(|| by_address.get(&*row.address)).copied();
        let at = at.unwrap_or_else(|| {
            count += 1;
            count
        });
        by_endpoint.insert(row.endpoint, at);
        if !row.address.is_empty() {
            by_address.insert(&row.address, at);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::dead::DeadPeer;

    fn mpi(kind: Kind) -> Mpi {
        Mpi {
            kind,
            version: "5".into(),
            file: "/m/mpiexec".into(),
            path: None,
        }
    }

    fn ran(mpi: &Mpi) -> Ran<'_> {
        Ran {
            mpi,
            no_shm: false,
            status: 0,
            verbose: false,
        }
    }

    #[test]
    fn the_reason_for_no_use_is_one_that_can_be() {
        let (mpich, open) = (mpi(Kind::Mpich), mpi(Kind::OpenMpi5));
        let said = |mpi, no_shm, opened| {
            let ran = Ran { no_shm, ..ran(mpi) };
            why_unused(&ran, opened)
        };
        assert!(said(&mpich, false, 2).contains("--no-shm"));
        assert!(said(&mpich, false, 0).contains("--no-shm"));
        for text in [
            said(&mpich, true, 2),
            said(&mpich, true, 0),
            said(&open, false, 2),
        ] {
            assert!(!text.contains("shared memory"), "{text}");
            assert!(text.contains("another MPI than"), "{text}");
        }
        assert!(said(&open, false, 0).contains("other hosts"));
        assert!(!said(&open, false, 2).contains("other hosts"));
    }

    #[test]
    fn only_the_verdict_of_a_used_network_without_deaths_is_well() {
        let mut summary = Summary::default();
        assert!(!is_well(&summary));
        summary.processes = 2;
        assert!(is_well(&summary));
        summary.unprotected.sums = 1;
        assert!(!is_well(&summary));
        summary.unprotected.sums = 0;
        summary.dead.push(DeadPeer::default());
        assert!(!is_well(&summary));
    }

    #[test]
    fn a_directory_of_ours_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt;
        let dir = StatsDir::open(None).unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        finish(&dir, &ran(&mpi(Kind::Mpich)), &SummaryArgs::default());
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn only_full_pages_are_remarked() {
        let page = |rows, peers_beyond| JobPage {
            peers: vec![PeerRow::default(); rows],
            peers_beyond,
            ..JobPage::default()
        };
        assert_eq!(said_of_sums(&[page(4, 0)]), "");
        assert_eq!(said_of_sums(&[page(4, 3)]), "", "three have left");
        let said = said_of_sums(&[page(4, 3), page(PEERS_MAX, 5)]);
        assert!(said.contains("no room for all: 5 peers"), "{said}");
    }

    #[test]
    fn packets_of_another_version_are_remarked() {
        use marline_engine::stats::rows::RailRow;
        let mut rail = RailRow::default();
        let page = |rail: &RailRow| JobPage {
            rails: vec![rail.clone()],
            peers: vec![PeerRow::default()],
            ..JobPage::default()
        };
        let said = |rail: &RailRow| said_of_versions(&[page(rail), page(rail)]);
        assert_eq!(said(&rail), "");
        rail.counters.wrong_version = 3;
        assert!(said(&rail).contains("6 packets"), "{}", said(&rail));
    }

    #[test]
    fn processes_without_a_page_are_counted() {
        use marline_engine::stats::rows::PathRow;
        let page = |own: u64, peers: &[u64]| {
            let row = |&endpoint: &u64| PeerRow {
                endpoint,
                paths: vec![PathRow::default(); usize::from(endpoint != own)],
                ..PeerRow::default()
            };
            JobPage {
                endpoints: vec![own],
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
        let mut two = [page(1, &[2, 3]), page(2, &[1, 4])];
        two[0].endpoints.push(4);
        two[1].endpoints.push(3);
        assert!(all(&two), "each of two processes has two endpoints");
        // A page may lack room for all endpoints.
        two.iter_mut().for_each(|page| page.endpoints.truncate(1));
        for (page, address) in two.iter_mut().zip(["10.0.0.2:7", "10.0.0.1:7"]) {
            for peer in &mut page.peers {
                peer.address = address.into();
            }
        }
        assert!(all(&two), "two endpoints in each process");
        assert!(all(&[page(1, &[1])]), "alone, with messages to itself");
        assert!(all(&[looked_around]) && all(&[]));
        let said = said_of_absent(&[page(1, &[2])]);
        assert!(said.contains("1 of 2 processes"), "{said}");
        let said = said_of_absent(&[page(1, &[1, 2, 3, 4]), page(2, &[1, 2, 3])]);
        assert!(said.contains("2 of 4 processes"), "{said}");
        // Four ranks on two hosts, with shared memory on each: every process has two addresses.
        let mut four = [1, 2, 3, 4].map(|own| page(own, &[1, 2, 3, 4]));
        for (n, page) in four.iter_mut().enumerate() {
            for peer in &mut page.peers {
                let by = if peer.endpoint as usize % 2 == n % 2 {
                    "shm"
                } else {
                    "10.0.0.1"
                };
                peer.address = format!("{by} {}", peer.endpoint);
            }
        }
        assert!(all(&four));
        let said = said_of_absent(&four[..2]);
        assert!(said.contains("2 of 4 processes"), "{said}");
    }
}
