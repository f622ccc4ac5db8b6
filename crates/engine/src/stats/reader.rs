//! Reads the pages of engines, running or ended. Nothing in a page is trusted.

use super::disabled::Disabled;
use super::events::{Event, Events, Kind};
use super::page::{self, at, PathRow, PathState, PeerState};
use super::ring::SLOT_WORDS;
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
use crate::platform::owned;
use std::cmp::Ordering;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A rail as its engine showed it.
#[derive(Clone, Debug, Default)]
pub struct RailRow {
    /// Interface.
    pub name: String,
    /// Local address.
    pub address: String,
    /// True if the interface is up.
    pub up: bool,
    /// True if the rail is on standby or waits for its interface.
    pub standby: bool,
    /// Its own counters, without those of its paths.
    pub counters: RailCounters,
}

/// A peer as an engine showed it.
#[derive(Clone, Debug, Default)]
pub struct PeerRow {
    /// Its endpoint number.
    pub endpoint: u64,
    /// One of its addresses.
    pub address: String,
    /// Its state.
    pub state: PeerState,
    /// Number of the payload checksum agreed with it, if known.
    pub checksum: Option<u8>,
    /// Its counters, without those of its paths.
    pub counters: PeerCounters,
    /// Its paths.
    pub paths: Vec<PathRow>,
}

/// Host, PID namespace, PID, start and rank of a process.
pub type ProcessKey<'a> = (&'a str, u64, u32, u64, Option<u32>);

/// One engine's page.
#[derive(Clone, Debug, Default)]
pub struct JobPage {
    /// Number of the user who owns the file, if it was read from one.
    pub user: u32,
    /// PID on its host.
    pub pid: u32,
    /// Start of the process in ticks since boot.
    pub pid_start: u64,
    /// Inode of the PID namespace.
    pub pid_space: u64,
    /// Host.
    pub host: String,
    /// Number of the `marline run` that started it, if any.
    pub run: Option<u64>,
    /// Rank in `MPI_COMM_WORLD`, where known.
    pub rank: Option<u32>,
    /// Random numbers of its endpoints, including closed ones, by which peers name it.
    pub endpoints: Vec<u64>,
    /// Number of further endpoints, which the page does not list.
    pub endpoints_beyond: u64,
    /// Nanoseconds since 1970 when the engine opened.
    pub opened_unix_ns: u64,
    /// Nanoseconds since 1970 of the last update.
    pub published_unix_ns: u64,
    /// True if the engine has closed.
    pub closed: bool,
    /// Protection that its settings disable.
    pub disabled: Disabled,
    /// True if every read hit an update, or the writer died during one: numbers may be
    /// inconsistent.
    pub torn: bool,
    /// Counters of the process.
    pub process: ProcessCounters,
    /// Its rails.
    pub rails: Vec<RailRow>,
    /// Peers with a row of their own.
    pub peers: Vec<PeerRow>,
    /// Sum over all peers without a row.
    pub others: PeerRow,
    /// Number of peers in `others`.
    pub peers_beyond: u64,
    /// Number of peers whose paths are summed by rail.
    pub peers_summed: u64,
    /// Events of rails, paths and peers.
    pub events: Events,
}

impl JobPage {
    /// Number of its first endpoint; 0: no endpoint was opened.
    pub fn endpoint(&self) -> u64 {
        self.endpoints.first().copied().unwrap_or(0)
    }

    /// Identifies its process, if known. A process has one page for each libfabric domain.
    pub fn process_key(&self) -> Option<ProcessKey<'_>> {
        let Self {
            host, pid, rank, ..
        } = self;
        (*pid != 0).then_some((host, self.pid_space, *pid, self.pid_start, *rank))
    }

    /// True if its process ended without closing it, as far as this process can see.
    pub fn is_left_behind(&self) -> bool {
        let seen = self.pid_space != 0 && self.pid_space == page::pid_space();
        let here = seen && self.host == page::host_name();
        let ended = || page::pid_start(self.pid) != Some(self.pid_start);
        !self.closed && here && (ended() || page::is_zombie(self.pid))
    }

    /// Peers including `others`.
    fn all_peers(&self) -> impl Iterator<Item = &PeerRow> {
        self.peers.iter().chain([&self.others])
    }

    /// Sum of the counters of all peers.
    pub fn peer_totals(&self) -> PeerCounters {
        let mut sum = PeerCounters::default();
        self.all_peers().for_each(|peer| sum.merge(&peer.counters));
        sum
    }

    /// Sum of the counters of all paths of rail `n`.
    pub fn path_totals(&self, n: usize) -> PathCounters {
        self.sum_paths(n, |_| true)
    }

    /// Sum of the counters of rail `n`'s paths to peers that were not declared dead.
    pub fn path_totals_alive(&self, n: usize) -> PathCounters {
        self.sum_paths(n, |peer| peer.state != PeerState::Dead)
    }

    fn sum_paths(&self, rail: usize, of: impl Fn(&PeerRow) -> bool) -> PathCounters {
        let mut sum = PathCounters::default();
        let peers = self.all_peers().filter(|peer| of(peer));
        let paths = peers.flat_map(|peer| &peer.paths);
        let paths = paths.filter(|path| path.rail as usize == rail);
        paths.for_each(|path| sum.merge(&path.counters));
        sum
    }

    /// True if the engine was in touch with another endpoint. Programs open some endpoints only to
    /// query capabilities, and an endpoint's messages to itself use no rail. A peer that no rail
    /// reaches has an event but no path.
    pub fn is_used(&self) -> bool {
        let refused = |event: &Event| event.kind == Kind::PeerDead;
        self.all_peers().any(|peer| !peer.paths.is_empty()) || self.events.list.iter().any(refused)
    }

    /// Time from opening to the last update.
    pub fn elapsed_ns(&self) -> u64 {
        self.published_unix_ns.saturating_sub(self.opened_unix_ns)
    }
}

/// The process that owns a page.
#[derive(Clone, Debug)]
pub struct Owner {
    /// PID in its namespace.
    pub pid: u32,
    /// Start of the process in ticks since boot.
    pub pid_start: u64,
    /// Inode of the PID namespace.
    pub pid_space: u64,
    /// Host.
    pub host: String,
}

/// Lists the pages in a directory that this user may read, sorted by name; empty without the
/// directory. Skips entries that are not regular files of this user, since any user may create
/// files in /dev/shm, and names with characters that control a terminal.
pub fn list_pages(dir: &Path) -> Vec<PathBuf> {
    let mut pages = named_as_pages(dir, owned::readable);
    pages.sort();
    pages
}

/// Counts other users' pages, which this user may not read, by their names.
pub fn count_foreign(dir: &Path) -> usize {
    named_as_pages(dir, |found| found.is_file() && !owned::readable(found)).len()
}

fn named_as_pages(dir: &Path, good: impl Fn(&Metadata) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_page = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let named = |name: &str| {
            let whole = name.starts_with("marline-") && name.ends_with(".page");
            whole && name.bytes().all(|b| b.is_ascii_graphic())
        };
        // Does not follow links.
        name.to_str().is_some_and(named) && entry.metadata().is_ok_and(|m| good(&m))
    };
    entries.filter(is_page).map(|e| e.path()).collect()
}

/// Reads only the header of a page, of this version or an earlier one.
pub fn read_owner(path: &Path) -> Result<Owner, String> {
    let words = Words(read_words(path, page::HEADER_WORDS)?);
    match (page::OWNER_SINCE..page::VERSION).contains(&words.get(at::VERSION)) {
        true => words.check_magic(path)?,
        false => words.check_header(path)?,
    }
    Ok(Owner {
        pid: words.get(at::PID) as u32,
        pid_start: words.get(at::PID_START),
        pid_space: words.get(at::PID_SPACE),
        host: words.text(at::HOST, page::HOST_WORDS),
    })
}

/// Reads a page. Waits briefly for a writer that is updating it.
pub fn read_page(path: &Path) -> Result<JobPage, String> {
    const TRIES: u32 = 50; // an update takes microseconds and happens once per 10 ms
    let read = || {
        let words = Words(read_words(path, page::PAGE_WORDS_MAX)?);
        words.check_header(path)?;
        Ok(words)
    };
    let (words, torn) = super::sequence::consistent(TRIES, || sequence(path), read)?;
    let page = words.parse(path, torn)?;
    let (events, user) = read_events(path)?;
    Ok(JobPage {
        user,
        events,
        ..page
    })
}

/// Reads only the events of a page, and the owner of its file.
fn read_events(path: &Path) -> Result<(Events, u32), String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = owned::open_to_read(path).map_err(fail)?;
    let user = file.metadata().map_err(fail)?.uid();
    let events = Events::read(|at| {
        let mut bytes = [0; 8 * SLOT_WORDS];
        match file.read_exact_at(&mut bytes, at as u64 * 8) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(fail(e)),
            Ok(()) => {}
        }
        let mut words = [0; SLOT_WORDS];
        words
            .iter_mut()
            .zip(words_of(&bytes))
            .for_each(|(to, word)| *to = word);
        Ok(words)
    })?;
    Ok((events, user))
}

/// Parses a page's bytes; `path` is for error texts.
pub fn parse_page(path: &Path, bytes: &[u8]) -> Result<JobPage, String> {
    let words = Words(words_of(bytes));
    words.check_header(path)?;
    let load = |at: usize| -> Result<_, std::convert::Infallible> {
        let mut slot = [0; SLOT_WORDS];
        let held = words.slice(at, SLOT_WORDS).iter();
        slot.iter_mut().zip(held).for_each(|(to, word)| *to = *word);
        Ok(slot)
    };
    let Ok(events) = Events::read(load);
    Ok(JobPage {
        events,
        ..words.parse(path, words.get(at::SEQUENCE) % 2 == 1)?
    })
}

fn sequence(path: &Path) -> Result<u64, String> {
    let words = read_words(path, at::SEQUENCE + 1)?;
    Ok(words.last().copied().unwrap_or(0))
}

fn read_words(path: &Path, words_max: usize) -> Result<Vec<u64>, String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = owned::open_to_read(path).map_err(fail)?;
    let mut bytes = Vec::new();
    let limit = words_max as u64 * 8;
    file.take(limit).read_to_end(&mut bytes).map_err(fail)?;
    Ok(words_of(&bytes))
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let eights = bytes.chunks_exact(8);
    eights
        .map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()))
        .collect()
}

/// The words of a page; missing words read as 0.
struct Words(Vec<u64>);

impl Words {
    fn get(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn slice(&self, at: usize, words: usize) -> &[u64] {
        let start = at.min(self.0.len());
        let end = (at + words).min(self.0.len());
        &self.0[start..end]
    }

    fn counters<C: Counters>(&self, at: usize) -> C {
        C::from_words(self.slice(at, C::ROWS.len()))
    }

    /// Text up to the first zero byte, with `?` for characters that cannot be printed.
    fn text(&self, at: usize, words: usize) -> String {
        let bytes = self.slice(at, words).iter().flat_map(|w| w.to_ne_bytes());
        let text: Vec<u8> = bytes.take_while(|&b| b != 0).collect();
        let text = String::from_utf8_lossy(&text);
        let shown = |c: char| {
            if c.is_control() || c == '\u{fffd}' {
                '?'
            } else {
                c
            }
        };
        text.chars().map(shown).collect()
    }

    fn check_magic(&self, path: &Path) -> Result<(), String> {
        match self.0.len() >= page::HEADER_WORDS && self.get(at::MAGIC) == page::MAGIC {
            true => Ok(()),
            false => Err(format!(
                "{} is not a statistics page of Marline",
                path.display()
            )),
        }
    }

    fn check_header(&self, path: &Path) -> Result<(), String> {
        self.check_magic(path)?;
        let path = path.display();
        let groups = page::GROUP_WORDS.map(|words| words as u64);
        let same = self.slice(at::GROUPS, groups.len()) == groups;
        let than_ours = match self.get(at::VERSION).cmp(&page::VERSION) {
            Ordering::Equal if same => return Ok(()),
            Ordering::Less => "an older",
            Ordering::Greater => "a newer",
            Ordering::Equal => "another",
        };
        Err(format!(
            "{path} is of {than_ours} version of Marline: its own `marline stats` can read it"
        ))
    }

    /// Parses the page; a page with missing parts is an error, since its sums would silently be too
    /// small. A page whose process died during an update (`torn`) is parsed as far as it goes.
    fn parse(&self, path: &Path, torn: bool) -> Result<JobPage, String> {
        let (peers, all) = self.peers();
        let others = self.peer(page::OTHERS_AT);
        let fits = self.0.len() >= page::PEERS_AT && self.get(at::RAILS) <= page::RAILS_MAX as u64;
        if !(torn || all && fits && others.is_some()) {
            return Err(format!("{} is cut off or damaged", path.display()));
        }
        let rank = self.get(at::RANK).checked_sub(1);
        let rails = self.get(at::RAILS).min(page::RAILS_MAX as u64) as usize;
        Ok(JobPage {
            user: 0,
            pid: self.get(at::PID) as u32,
            pid_start: self.get(at::PID_START),
            pid_space: self.get(at::PID_SPACE),
            run: Some(self.get(at::RUN)).filter(|&number| number != 0),
            host: self.text(at::HOST, page::HOST_WORDS),
            rank: rank.and_then(|rank| u32::try_from(rank).ok()),
            endpoints: self.endpoints(),
            endpoints_beyond: self
                .get(at::ENDPOINTS)
                .saturating_sub(page::ENDPOINTS_MAX as u64),
            opened_unix_ns: self.get(at::OPENED),
            published_unix_ns: self.get(at::PUBLISHED),
            closed: self.get(at::CLOSED) == 1,
            disabled: Disabled::from_word(self.get(at::DISABLED)),
            torn,
            process: self.counters(page::PROCESS_AT),
            rails: (0..rails).map(|n| self.rail(n)).collect(),
            peers,
            others: others.unwrap_or_default(),
            peers_beyond: self.get(at::PEERS_BEYOND),
            peers_summed: self.get(at::PEERS_SUMMED),
            events: Events::default(),
        })
    }

    fn endpoints(&self) -> Vec<u64> {
        let count = self.get(at::ENDPOINTS).min(page::ENDPOINTS_MAX as u64) as usize;
        let numbers = self.slice(page::ENDPOINTS_AT, count).iter().copied();
        numbers.filter(|&number| number != 0).collect()
    }

    fn rail(&self, n: usize) -> RailRow {
        let row = page::RAILS_AT + n * page::RAIL_WORDS;
        let address = row + page::NAME_WORDS;
        RailRow {
            name: self.text(row, page::NAME_WORDS),
            address: self.text(address, page::ADDRESS_WORDS),
            up: self.get(address + page::ADDRESS_WORDS) & 1 == 1,
            standby: self.get(address + page::ADDRESS_WORDS) & 2 == 2,
            counters: self.counters(row + page::RAIL_HEAD_WORDS),
        }
    }

    /// The rows of peers as far as there are words, and whether all of them are there.
    fn peers(&self) -> (Vec<PeerRow>, bool) {
        let (mut row, mut peers) = (page::PEERS_AT, Vec::new());
        let count = self.get(at::PEERS);
        for _ in 0..count.min(page::PEERS_MAX as u64) {
            let Some(peer) = self.peer(row) else { break };
            row += page::peer_words(peer.paths.len());
            peers.push(peer);
        }
        let all = peers.len() as u64 == count;
        (peers, all)
    }

    fn peer(&self, row: usize) -> Option<PeerRow> {
        let at = row + 1 + page::ADDRESS_WORDS;
        let checksum = self.get(at) >> page::CHECKSUM_SHIFT;
        let state = self.get(at) & ((1 << page::CHECKSUM_SHIFT) - 1);
        let paths = usize::try_from(self.get(at + 1)).ok()?;
        if paths > page::PATHS_MAX || row + page::peer_words(paths) > self.0.len() {
            return None;
        }
        let path = |n| self.path(row + page::PEER_PATHS_AT + n * page::PATH_WORDS);
        Some(PeerRow {
            endpoint: self.get(row),
            address: self.text(row + 1, page::ADDRESS_WORDS),
            state: PeerState::from_word(state),
            checksum: checksum.checked_sub(1).and_then(|n| u8::try_from(n).ok()),
            counters: self.counters(row + page::PEER_HEAD_WORDS),
            paths: (0..paths).map(path).collect(),
        })
    }

    fn path(&self, row: usize) -> PathRow {
        PathRow {
            rail: self.get(row) as u32,
            peer_rail: (self.get(row) >> 32) as u32,
            state: PathState::from_word(self.get(row + 1)),
            counters: self.counters(row + page::PATH_HEAD_WORDS),
        }
    }
}
