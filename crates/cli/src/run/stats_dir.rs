//! The directory for the statistics of a `marline run`.

use crate::tool;
use marline_codes::Code;
use marline_engine::owned;
use marline_engine::stats::page;
use marline_engine::stats::process;
use marline_engine::stats::reader;
use marline_engine::stats::rows::JobPage;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The setting with the directory for engines' statistics.
pub const STATS_DIR: &str = "FI_MARLINE_STATS_DIR";

/// Name prefix of directories that runs make for themselves.
const OF_RUN: &str = "marline-stats-";

/// Name prefix of directories for jobs.
const OF_JOB: &str = "marline-job-";

fn since_epoch() -> std::time::Duration {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.unwrap_or_default()
}

/// Places for runs' directories: in memory if the machine has such a place, else the temporary
/// directory.
pub fn bases() -> [PathBuf; 2] {
    [page::DEFAULT_DIR.into(), std::env::temp_dir()]
}

/// Makes a new directory without access for other users.
fn make(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(dir)
}

/// The statistics directory of a job.
pub struct StatsDir {
    path: PathBuf,
    /// True for the user's own directory, which is kept with the pages of earlier jobs.
    kept: bool,
    earlier: BTreeSet<PathBuf>,
    /// The run's number, which ranks write on their pages: other jobs may use the same directory.
    run: u64,
}

/// A number unique to this run.
fn number() -> u64 {
    since_epoch().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_right(22)
}

impl StatsDir {
    /// Opens the user's directory, or a new one that is removed on drop.
    pub fn open(given: Option<&Path>) -> Result<StatsDir, String> {
        let Some(dir) = given else {
            return StatsDir::fresh();
        };
        let bad = |why: &str| format!("{STATS_DIR}={}: {why}", dir.display());
        // Absolute, as ranks run in other directories.
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
            run: number(),
        })
    }

    /// A fresh directory in the first place of [`bases`] with room.
    fn fresh() -> Result<StatsDir, String> {
        let mut without = Vec::new();
        for base in bases() {
            match StatsDir::inside(&base) {
                Ok(dir) => {
                    for why in without {
                        let text = format!("{why}; statistics go to {}", base.display());
                        tool::say(&Code::StatisticsRoom.message(text));
                    }
                    return Ok(dir);
                }
                Err(why) => without.push(format!("{}: {why}", base.display())),
            }
        }
        let without = without.join("; ");
        Err(format!(
            "no place for statistics: {without}; set {STATS_DIR} to a directory with room"
        ))
    }

    fn inside(base: &Path) -> std::io::Result<StatsDir> {
        remove_abandoned(base);
        let pid = std::process::id();
        let path = base.join(format!(
            "{OF_RUN}{}-{pid}-{}-{}",
            process::pid_space(),
            process::pid_start(pid).unwrap_or(0),
            since_epoch().as_nanos()
        ));
        make(&path)?;
        let dir = StatsDir {
            path,
            kept: false,
            earlier: BTreeSet::new(),
            run: number(),
        };
        dir.room()?;
        Ok(dir)
    }

    /// Fails if there is no room for another process's page.
    pub fn room(&self) -> std::io::Result<()> {
        let file = self.path.join(format!("room-{}", std::process::id()));
        let written = tool::write_new(&file, &vec![0; page::ROOM_WORDS * 8]);
        let _ = fs::remove_file(&file);
        written
    }

    /// A new directory in `parent` for a job of a batch system; the user removes it.
    pub fn of_job(parent: &Path) -> Result<PathBuf, String> {
        let bad = |e: std::io::Error| format!("--stats {}: {e}", parent.display());
        let parent = fs::canonicalize(parent).map_err(bad)?;
        let stamp = since_epoch();
        let path = parent.join(format!(
            "{OF_JOB}{}-{}-{:09}",
            process::host_name(),
            stamp.as_secs(),
            stamp.subsec_nanos()
        ));
        make(&path).map_err(bad)?;
        Ok(path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Variables for the ranks.
    pub fn variables(&self) -> [(String, String); 2] {
        let path = self.path.to_string_lossy().into_owned();
        [
            (STATS_DIR.to_owned(), path),
            (page::RUN.to_owned(), self.run.to_string()),
        ]
    }

    /// False for a page of another run. (Launchers that drop the variable leave pages without a
    /// number; such a page must belong to this user.)
    pub fn may_be_ours(&self, page: &JobPage) -> bool {
        page.run
            .map_or(page.user == owned::user(), |run| run == self.run)
    }

    /// Pages written since the directory was opened.
    pub fn new_pages(&self) -> Vec<PathBuf> {
        let mut pages = reader::list_pages(&self.path);
        pages.retain(|path| !self.earlier.contains(path));
        pages
    }
}

impl Drop for StatsDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes directories of this user's killed runs: those whose run has ended, and in which no page
/// belongs to a living process.
fn remove_abandoned(base: &Path) {
    let ours = |dir: &PathBuf| dir.symlink_metadata().is_ok_and(|m| owned::is_ours(&m));
    for dir in of_runs(base).into_iter().filter(ours) {
        let pages = reader::list_pages(&dir);
        let owners = pages
            .iter()
            .filter_map(|page| reader::read_owner(page).ok());
        let mut owners = owners.map(|o| (o.pid_space, o.pid, o.pid_start));
        if runner(&dir).is_some_and(has_ended) && owners.all(has_ended) {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// Directories that runs made, alive or not, excluding symbolic links.
pub fn of_runs(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let named = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let ours = |n: &str| n.starts_with(OF_RUN) && n.bytes().all(|b| b.is_ascii_graphic());
        name.to_str().is_some_and(ours) && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let mut dirs: Vec<_> = entries.filter(named).map(|e| e.path()).collect();
    dirs.sort();
    dirs
}

/// A process by rank or number, for users.
pub fn process(page: &JobPage) -> String {
    match page.rank {
        Some(rank) => format!("rank {rank} on {}", page.host),
        None => format!("process {} on {}", page.pid, page.host),
    }
}

/// PID namespace, number and start time of the process that made a directory, from its name.
fn runner(dir: &Path) -> Option<(u64, u32, u64)> {
    let name = dir.file_name()?.to_str()?.strip_prefix(OF_RUN)?;
    let mut words = name.split('-');
    let space = words.next()?.parse().ok()?;
    let pid = words.next()?.parse().ok()?;
    Some((space, pid, words.next()?.parse().ok()?))
}

/// True if a process has certainly ended. Processes of other containers are invisible here.
fn has_ended((space, pid, start): (u64, u32, u64)) -> bool {
    space != 0 && space == process::pid_space() && process::pid_start(pid) != Some(start)
}
