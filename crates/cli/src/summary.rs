//! The table at the end of a run: one line per rail, from the statistics that the ranks left.

use marline_engine::stats::reader::{self, JobPage};
use marline_engine::stats::summary::{format_summary, Summary};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The setting that says where engines leave their statistics.
pub const STATS_DIR: &str = "FI_MARLINE_STATS_DIR";

/// Where a job leaves its statistics.
pub struct StatsDir {
    path: PathBuf,
    /// The user's own: kept, with what is in it of earlier jobs.
    kept: bool,
    earlier: BTreeSet<PathBuf>,
}

impl StatsDir {
    /// The user's directory, or where there is none a fresh one, removed when dropped.
    pub fn open(given: Option<&Path>) -> Result<StatsDir, String> {
        let Some(dir) = given else {
            return StatsDir::fresh();
        };
        let bad = |why: &str| format!("{STATS_DIR}={}: {why}", dir.display());
        // Absolute, since ranks run elsewhere.
        let path = fs::canonicalize(dir)
            .map_err(|e| bad(&format!("{e}; make it, where all hosts of the job see it")))?;
        if !path.is_dir() {
            return Err(bad("not a directory"));
        }
        let earlier = reader::list_pages(&path).into_iter().collect();
        Ok(StatsDir {
            path,
            kept: true,
            earlier,
        })
    }

    /// In memory where the machine has a place for that.
    fn fresh() -> Result<StatsDir, String> {
        use std::os::unix::fs::DirBuilderExt;
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let since_epoch = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default();
        let name = format!(
            "marline-stats-{}-{}",
            std::process::id(),
            since_epoch.as_nanos()
        );
        let path = base.join(name);
        // Other users have no business in it, and the name must not exist yet.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(StatsDir {
            path,
            kept: false,
            earlier: BTreeSet::new(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Prints the table on standard error: standard output belongs to the program, which ended with
    /// `status`.
    pub fn print_summary(&self, status: u8) {
        let mut pages = Vec::new();
        let new = reader::list_pages(&self.path);
        for path in new.iter().filter(|path| !self.earlier.contains(*path)) {
            match reader::read_page(path) {
                Ok(page) => pages.push(page),
                Err(error) => eprintln!("marline: {error}"),
            }
        }
        let summary = Summary::of(&pages);
        eprint!("{}", format_summary(&summary));
        if summary.processes == 0 && status == 0 {
            eprintln!(
                "Marline: its ranks were on one host and used the MPI's shared memory (--no-shm), \
                 or the program was built for another MPI than its mpiexec"
            );
        }
        eprint!("{}", said_of_versions(&summary));
        eprint!("{}", said_of_absent(&pages));
    }
}

impl Drop for StatsDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
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
    // A page does not say which endpoint is its own; that one has no paths, if it is a peer at all.
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
        dir.print_summary(0);
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
