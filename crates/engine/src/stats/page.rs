//! The page of shared memory on which an engine publishes its counters, and its writer. [`layout`]
//! describes the fields.
//!
//! A page has one writer. `at::SEQUENCE` is odd during an update (seqlock).

use super::disabled::Disabled;
use super::events::Recorder;
use super::given::Given;
use super::history::{History, Sampler};
pub use super::layout::*;
use super::map::Map;
use super::process::{host_name, pid_space, pid_start};
use super::rows::{JobPage, PeerRow};
use super::sequence;
use super::words::{self, Words};
use crate::platform::fork::Generation;
use crate::platform::owned;
use crate::platform::wall_clock::unix_ns;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Directory of pages that are not to be retained.
pub const DEFAULT_DIR: &str = "/dev/shm";

/// The part of a page that describes its engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageInfo<'a> {
    /// Setting `stats_dir`; empty: [`DEFAULT_DIR`], where the page is removed when the engine
    /// closes.
    pub dir: &'a str,
    /// Rank in `MPI_COMM_WORLD` from the launcher's environment (see [`rank_from_env`]).
    pub rank: Option<u32>,
    /// Number of the `marline run` that started the process (see [`run_from_env`]).
    pub run: Option<u64>,
    /// Protection that the settings disable.
    pub disabled: Disabled,
    /// Settings that differ from their defaults.
    pub settings: &'a [Given],
    /// Oldest and newest version of the wire protocol that the process speaks.
    pub wire: (u8, u8),
}

/// Rank from the environment variables of common launchers.
pub fn rank_from_env() -> Option<u32> {
    let names = [
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
    ];
    let texts = names.iter().filter_map(|name| std::env::var(name).ok());
    texts.filter_map(|text| text.parse().ok()).next()
}

/// Variable in which `marline run` gives its run number to ranks, by which it finds their pages.
pub const RUN: &str = "MARLINE_RUN";

/// Number of the `marline run` that started this process.
pub fn run_from_env() -> Option<u64> {
    std::env::var(RUN).ok()?.parse().ok()
}

/// The page of one engine.
#[derive(Debug)]
pub struct Page {
    map: Map,
    path: PathBuf,
    keep: bool,
    made: Generation,
    /// The fields that do not change between updates.
    base: JobPage,
    sampler: Sampler,
}

impl Page {
    /// Creates the page. Errors are texts for the user; an engine works without a page.
    pub fn open(info: &PageInfo<'_>) -> Result<Page, String> {
        let host = host_name();
        let keep = !info.dir.is_empty();
        let dir = Path::new(if keep { info.dir } else { DEFAULT_DIR });
        let owner = if keep {
            host.clone()
        } else {
            owned::user().to_string()
        };
        let (file, path) = create(dir, &owner)
            .map_err(|e| format!("no statistics page in {}: {e}", dir.display()))?;
        let made = Generation::current();
        let fail = |what: &str| {
            let _ = std::fs::remove_file(&path);
            format!("no statistics page in {}: {what}", dir.display())
        };
        let mut map = Map::new(file, PAGE_WORDS_MAX * 8).map_err(|e| fail(&e.to_string()))?;
        if !map.reserve(ROOM_WORDS) {
            return Err(fail("no space left"));
        }
        write_header(map.words(), &host);
        let base = JobPage {
            run: info.run,
            rank: info.rank,
            opened_unix_ns: unix_ns(),
            disabled: info.disabled,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            wire_oldest: info.wire.0,
            wire_newest: info.wire.1,
            settings: info.settings.iter().take(SETTINGS_MAX).cloned().collect(),
            ..JobPage::default()
        };
        let mut page = Page {
            map,
            path,
            keep,
            made,
            base,
            sampler: Sampler::new(),
        };
        page.publish(|_| {});
        Ok(page)
    }

    /// A writer of events for a thread other than the one that writes the counters.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(self.map.share())
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file remains after the engine closes.
    pub fn is_kept(&self) -> bool {
        self.keep
    }

    /// Publishes what `fill` gives. Costs a copy of all rows: meant for once per tick.
    pub fn publish(&mut self, fill: impl FnOnce(&mut PageWriter<'_>)) {
        if self.made.is_forked() {
            return; // a forked child shares the memory with its parent, which owns the page
        }
        let mut writer = PageWriter {
            page: self.base.clone(),
            map: &mut self.map,
            end: ROOM_WORDS,
        };
        fill(&mut writer);
        let PageWriter { mut page, end, .. } = writer;
        page.endpoints.truncate(ENDPOINTS_MAX);
        page.rails.truncate(RAILS_MAX);
        page.others.paths.truncate(RAILS_MAX);
        let age_ns = unix_ns().saturating_sub(page.opened_unix_ns);
        let bytes = page.rails.iter().map(|rail| {
            let counters = &rail.counters;
            (counters.wire_bytes_sent, counters.wire_bytes_received)
        });
        let totals: Vec<_> = bytes.collect();
        page.history = self.sampler.add(age_ns, &totals).clone();
        if !self.map.reserve(end + words::count(&page.history)) {
            page.history = History::default();
        }
        self.update(|words| {
            let mut words = words[BODY_AT..].iter();
            page.put(&mut |value| {
                if let Some(word) = words.next() {
                    word.store(value, Ordering::Relaxed);
                }
            });
        });
    }

    fn update(&self, write: impl FnOnce(&[AtomicU64])) {
        let words = self.map.words();
        sequence::begin(&words[at::SEQUENCE]);
        write(words);
        words[at::PUBLISHED].store(unix_ns(), Ordering::Relaxed);
        sequence::end(&words[at::SEQUENCE]);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.made.is_forked() {
            return;
        }
        self.update(|words| words[at::CLOSED].store(1, Ordering::Relaxed));
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Fills a page: one row for each peer while there is room, the others summed.
#[derive(Debug)]
pub struct PageWriter<'a> {
    /// The page, of which [`PageWriter::peer`] fills the peers.
    pub page: JobPage,
    map: &'a mut Map,
    /// Words that the peers so far need at most.
    end: usize,
}

impl PageWriter<'_> {
    /// Adds a peer with its used paths. After the first peer without room all further ones are
    /// summed, too: their rows would move once that peer gets a row.
    pub fn peer(&mut self, mut row: PeerRow) {
        row.drop_idle_paths();
        if self.page.peers_beyond == 0 {
            if self.reserve(&row) {
                return self.page.peers.push(row);
            }
            // The totals must include all paths.
            let all = std::mem::take(&mut row.paths);
            all.iter().for_each(|path| row.add_path(path));
            if row.paths.len() < all.len() && self.reserve(&row) {
                self.page.peers_summed += 1;
                return self.page.peers.push(row);
            }
        }
        self.without_rows(1, &row);
    }

    /// Adds a sum over peers without rows. After the last peer with a row.
    pub fn without_rows(&mut self, peers: u64, sum: &PeerRow) {
        self.page.peers_beyond += peers;
        self.page.others.merge(sum);
    }

    /// The number of all peers.
    pub fn peers(&self) -> u64 {
        self.page.peers.len() as u64 + self.page.peers_beyond
    }

    /// Takes room for a row. `false`: too many peers or paths, or no memory.
    fn reserve(&mut self, row: &PeerRow) -> bool {
        let end = self.end + words::count(row);
        let few = self.page.peers.len() < PEERS_MAX && row.paths.len() <= PATHS_MAX;
        let room = few && end <= PAGE_WORDS_MAX && self.map.reserve(end);
        self.end = if room { end } else { self.end };
        room
    }
}

fn write_header(words: &[AtomicU64], host: &str) {
    let set = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
    let pid = std::process::id();
    set(at::VERSION, VERSION);
    set(at::PID, u64::from(pid));
    set(at::PID_START, pid_start(pid).unwrap_or(0));
    set(at::PID_SPACE, pid_space());
    (at::GROUPS..)
        .zip(GROUP_WORDS)
        .for_each(|(at, count)| set(at, count as u64));
    let mut at = at::HOST..;
    words::put_text(host, HOST_WORDS, &mut |word| {
        at.next().into_iter().for_each(|at| set(at, word));
    });
    words[at::MAGIC].store(MAGIC, Ordering::Release);
}

/// Creates a file that did not exist, so that a page of another process is never overwritten and no
/// link followed.
fn create(dir: &Path, owner: &str) -> std::io::Result<(File, PathBuf)> {
    static PAGES: AtomicU32 = AtomicU32::new(0);
    const TRIES: u32 = 100; // earlier processes with this number may have left pages
    let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let n = PAGES.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("marline-{owner}-{}-{n}.page", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

#[cfg(test)]
#[path = "page_test.rs"]
mod test;
