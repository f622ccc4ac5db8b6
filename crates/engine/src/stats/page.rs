//! The page of shared memory on which an engine publishes its counters, and its writer. [`layout`]
//! describes the fields.
//!
//! A page has one writer. `at::SEQUENCE` is odd during an update (seqlock).

use super::disabled::Disabled;
use super::events::Recorder;
pub use super::layout::*;
use super::map::Map;
use super::{sequence, Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
use crate::platform::fork::Generation;
use crate::platform::owned;
use crate::platform::wall_clock::unix_ns;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Directory of pages that are not to be retained.
pub const DEFAULT_DIR: &str = "/dev/shm";

macro_rules! states {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $state:ident,)* }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { #[default] $($(#[doc = $doc])+ $state,)* }

        impl $name {
            /// Decodes a page's word; invalid words give the first state.
            pub fn from_word(word: u64) -> $name {
                let all = [$($name::$state),*];
                all.into_iter().find(|&s| s as u64 == word).unwrap_or_default()
            }
        }
    };
}

states! {
    /// The state of a path.
    PathState {
        /// No answer yet.
        Unknown,
        /// In use.
        Up,
        /// PTOs have expired.
        Suspect,
        /// Declared down; probes continue.
        Down,
        /// Answers again; on probation.
        Probation,
    }
}

states! {
    /// The state of a peer.
    PeerState {
        /// Contacted, no answer yet.
        Contacted,
        /// Answers.
        Alive,
        /// Said BYE.
        Closed,
        /// Declared dead.
        Dead,
    }
}

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
}

/// A rail's row.
#[derive(Clone, Copy, Debug, Default)]
pub struct RailInfo<'a> {
    /// Interface.
    pub name: &'a str,
    /// Local address as text.
    pub address: &'a str,
    /// True if the interface is up.
    pub up: bool,
    /// True if the rail is on standby or waits for its interface.
    pub standby: bool,
}

/// A peer's row.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerInfo<'a> {
    /// Its endpoint number.
    pub endpoint: u64,
    /// One of its addresses as text.
    pub address: &'a str,
    /// Its state.
    pub state: PeerState,
    /// Number of the payload checksum agreed with it, if known.
    pub checksum: Option<u8>,
}

/// A path's row.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathRow {
    /// Index of our rail.
    pub rail: u32,
    /// Index of the peer's rail; [`PathRow::SEVERAL`] for a sum over several paths.
    pub peer_rail: u32,
    /// Its state.
    pub state: PathState,
    /// Its counters.
    pub counters: PathCounters,
}

impl PathRow {
    /// Index for a sum over several of the peer's rails.
    pub const SEVERAL: u32 = u32::MAX;
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
        if !map.reserve(PEERS_AT) {
            return Err(fail("no space left"));
        }
        write_header(map.words(), info, &host);
        Ok(Page {
            map,
            path,
            keep,
            made,
        })
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

    /// Publishes the rows that `fill` writes; other rows keep their contents. Costs a copy of these
    /// rows: meant for once per tick.
    pub fn publish(&mut self, fill: impl FnOnce(&mut PageWriter<'_>)) {
        if self.made.is_forked() {
            return; // a forked child shares the memory with its parent, which owns the page
        }
        sequence::begin(&self.map.words()[at::SEQUENCE]);
        fill(&mut PageWriter {
            map: &mut self.map,
            peers: 0,
            peers_end: PEERS_AT,
            summed: 0,
        });
        let words = self.map.words();
        words[at::PUBLISHED].store(unix_ns(), Ordering::Relaxed);
        sequence::end(&words[at::SEQUENCE]);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.made.is_forked() {
            return;
        }
        self.publish(|w| w.set(at::CLOSED, 1));
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Writes rows of a page.
#[derive(Debug)]
pub struct PageWriter<'a> {
    map: &'a mut Map,
    /// Peers written so far, and the index of the next peer's row.
    peers: usize,
    peers_end: usize,
    /// Peers whose paths are summed by rail.
    summed: u64,
}

impl PageWriter<'_> {
    fn set(&mut self, at: usize, value: u64) {
        self.map.words()[at].store(value, Ordering::Relaxed);
    }

    fn set_all(&mut self, at: usize, values: &[u64]) {
        for (word, &value) in self.map.words()[at..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn set_text(&mut self, at: usize, words: usize, text: &str) {
        put_text(&self.map.words()[at..at + words], text);
    }

    fn raise(&mut self, at: usize, value: u64) {
        self.map.words()[at].fetch_max(value, Ordering::Relaxed);
    }

    /// Random endpoint numbers of the engine's first endpoints, by which peers name it, and the
    /// total number of endpoints opened.
    pub fn endpoints(&mut self, first: &[u64], opened: u64) {
        self.set_all(ENDPOINTS_AT, &first[..first.len().min(ENDPOINTS_MAX)]);
        self.set(at::ENDPOINTS, opened);
    }

    /// The process's counters.
    pub fn process(&mut self, counters: &ProcessCounters) {
        self.set_all(PROCESS_AT, counters.words().as_ref());
    }

    /// Writes rail `n`; rails beyond [`RAILS_MAX`] are omitted.
    pub fn rail(&mut self, n: usize, info: &RailInfo<'_>, counters: &RailCounters) {
        if n >= RAILS_MAX {
            return;
        }
        let row = RAILS_AT + n * RAIL_WORDS;
        self.set_text(row, NAME_WORDS, info.name);
        self.set_text(row + NAME_WORDS, ADDRESS_WORDS, info.address);
        self.set(
            row + NAME_WORDS + ADDRESS_WORDS,
            u64::from(info.up) | u64::from(info.standby) << 1,
        );
        self.set_all(row + RAIL_HEAD_WORDS, counters.words().as_ref());
        self.raise(at::RAILS, n as u64 + 1);
    }

    /// Writes the next peer. Returns `false` when there is no row left (too many peers, or no
    /// memory): that peer belongs to [`PageWriter::end_peers`]. Every update writes all rows anew.
    pub fn peer(
        &mut self,
        info: &PeerInfo<'_>,
        counters: &PeerCounters,
        paths: &[PathRow],
    ) -> bool {
        let end = self.peers_end + peer_words(paths.len());
        let room = self.peers < PEERS_MAX && paths.len() <= PATHS_MAX && end <= PAGE_WORDS_MAX;
        if !room || !self.map.reserve(end) {
            return false;
        }
        self.peer_row(self.peers_end, info, counters, paths);
        self.peers_end = end;
        self.peers += 1;
        true
    }

    /// Notes that the last peer's paths are summed by rail.
    pub(super) fn paths_summed(&mut self) {
        self.summed += 1;
    }

    /// Writes, after the last peer, the sum over all peers without a row: their number, their
    /// counters, and one row of paths for each of our rails.
    pub fn end_peers(&mut self, beyond: u64, counters: &PeerCounters, paths: &[PathRow]) {
        let paths = &paths[..paths.len().min(RAILS_MAX)];
        self.peer_row(OTHERS_AT, &PeerInfo::default(), counters, paths);
        self.set(at::PEERS, self.peers as u64);
        self.set(at::PEERS_BEYOND, beyond);
        self.set(at::PEERS_SUMMED, self.summed);
    }

    fn peer_row(
        &mut self,
        row: usize,
        info: &PeerInfo<'_>,
        counters: &PeerCounters,
        paths: &[PathRow],
    ) {
        self.set(row, info.endpoint);
        self.set_text(row + 1, ADDRESS_WORDS, info.address);
        let checksum = info.checksum.map_or(0, |number| u64::from(number) + 1);
        let state = info.state as u64 | checksum << CHECKSUM_SHIFT;
        self.set(row + 1 + ADDRESS_WORDS, state);
        self.set(row + 2 + ADDRESS_WORDS, paths.len() as u64);
        self.set_all(row + PEER_HEAD_WORDS, counters.words().as_ref());
        for (n, path) in paths.iter().enumerate() {
            let at = row + PEER_PATHS_AT + n * PATH_WORDS;
            let rails = u64::from(path.rail) | u64::from(path.peer_rail) << 32;
            self.set_all(at, &[rails, path.state as u64]);
            self.set_all(at + PATH_HEAD_WORDS, path.counters.words().as_ref());
        }
    }
}

/// Copies text into words, truncated or padded with zeros.
fn put_text(words: &[AtomicU64], text: &str) {
    let mut bytes = text.bytes();
    for word in words {
        let eight = [(); 8].map(|()| bytes.next().unwrap_or(0));
        word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
    }
}

fn write_header(words: &[AtomicU64], info: &PageInfo<'_>, host: &str) {
    let set = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
    let pid = std::process::id();
    set(at::VERSION, VERSION);
    set(at::PID, u64::from(pid));
    set(at::PID_START, pid_start(pid).unwrap_or(0));
    set(at::PID_SPACE, pid_space());
    set(at::RANK, info.rank.map_or(0, |rank| u64::from(rank) + 1));
    set(at::RUN, info.run.unwrap_or(0));
    set(at::DISABLED, info.disabled.word());
    set(at::OPENED, unix_ns());
    set(at::PUBLISHED, unix_ns());
    for (n, &count) in GROUP_WORDS.iter().enumerate() {
        set(at::GROUPS + n, count as u64);
    }
    put_text(&words[at::HOST..at::HOST + HOST_WORDS], host);
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

/// Start of a process in ticks since boot; `None` without such a process.
pub fn pid_start(pid: u32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

/// True if a process has ended but its parent has not yet collected its status.
pub fn is_zombie(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state == "Z")
}

/// A field of `/proc/PID/stat` after the name, counted from 0 (proc(5)).
fn stat_field(pid: u32, at: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(at).map(str::to_owned)
}

/// Inode of the PID namespace; 0 if unknown.
pub fn pid_space() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// This host's name, with `_` for characters that are not safe in a file name.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '.' {
            c
        } else {
            '_'
        }
    };
    name.trim()
        .chars()
        .take(HOST_WORDS * 8)
        .map(clean)
        .collect()
}

#[cfg(test)]
#[path = "page_test.rs"]
mod test;
