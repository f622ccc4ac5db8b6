//! Rows of a page: an engine with its rails, peers and paths.

use super::disabled::Disabled;
use super::events::{Event, Events, Kind};
use super::given::Given;
use super::history::History;
use super::process;
use super::waits::ProcessWaits;
use super::words::{named, record};
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};

named! {
    /// The state of a path.
    PathState {
        /// No answer yet.
        Unknown = 0, "unknown";
        /// In use.
        Up = 1, "up";
        /// PTOs have expired.
        Suspect = 2, "suspect";
        /// Declared down; probes continue.
        Down = 3, "down";
        /// Answers again; on probation.
        Probation = 4, "probation";
    }
}

named! {
    /// The state of a peer.
    PeerState {
        /// Contacted, no answer yet.
        Contacted = 0, "contacted";
        /// Answers.
        Alive = 1, "alive";
        /// Said BYE.
        Closed = 2, "closed";
        /// Declared dead.
        Dead = 3, "dead";
    }
}

record! {
    /// A rail.
    RailRow {
        /// Interface.
        name: String,
        /// Local address.
        address: String,
        /// True if the interface is up.
        up: bool,
        /// True if the rail is on standby or waits for its interface.
        standby: bool,
        /// Largest packet in bytes.
        packet_bytes_max: u64,
        /// Counters of the rail, without those of its paths.
        counters: RailCounters,
    }
}

record! {
    /// A path.
    #[derive(Copy)]
    PathRow {
        /// Index of our rail.
        rail: u32,
        /// Index of the peer's rail; [`PathRow::SEVERAL`] for a sum over several paths.
        peer_rail: u32,
        /// State of the path.
        state: PathState,
        /// Counters of the path.
        counters: PathCounters,
    }
}

record! {
    /// A peer.
    PeerRow {
        /// The peer's endpoint number.
        endpoint: u64,
        /// An address of the peer.
        address: String,
        /// State of the peer.
        state: PeerState,
        /// Number of the payload checksum agreed with the peer, if known.
        checksum: Option<u8>,
        /// Counters of the peer, without those of its paths.
        counters: PeerCounters,
        /// Paths to the peer.
        paths: Vec<PathRow>,
    }
}

record! {
    /// The page of an engine.
    JobPage {
        /// Number of the `marline run` that started the process, if any.
        run: Option<u64>,
        /// Rank in `MPI_COMM_WORLD`, where known.
        rank: Option<u32>,
        /// Random numbers by which peers name the engine's first endpoints, including closed ones.
        endpoints: Vec<u64>,
        /// Number of further endpoints, which the page does not list.
        endpoints_beyond: u64,
        /// Nanoseconds since 1970 when the engine opened.
        opened_unix_ns: u64,
        /// Protection that the engine's settings disable.
        disabled: Disabled,
        /// Version of the library.
        library: String,
        /// Oldest version of the wire protocol that the process speaks.
        wire_oldest: u8,
        /// Newest version of the wire protocol that the process speaks.
        wire_newest: u8,
        /// Settings that differ from their defaults.
        settings: Vec<Given>,
        /// Counters of the process.
        process: ProcessCounters,
        /// Waits of the process.
        waits: ProcessWaits,
        /// Rails of the engine.
        rails: Vec<RailRow>,
        /// Sum over all peers without a row: a row of paths for each of our rails.
        others: PeerRow,
        /// Number of peers in `others`.
        peers_beyond: u64,
        /// Number of peers whose paths are summed by rail for lack of room.
        peers_summed: u64,
        /// Peers with a row of their own.
        peers: Vec<PeerRow>,
        /// Bytes of the rails over time.
        history: History,
    } beside {
        /// Number of the user who owns the file, if it was read from one.
        user: u32,
        /// PID on its host.
        pid: u32,
        /// Start of the process in ticks since boot.
        pid_start: u64,
        /// Inode of the PID namespace.
        pid_space: u64,
        /// Host.
        host: String,
        /// Nanoseconds since 1970 of the last update.
        published_unix_ns: u64,
        /// True if the engine has closed.
        closed: bool,
        /// True if every read hit an update, or the writer died during one: numbers may be
        /// inconsistent.
        torn: bool,
        /// Events of rails, paths and peers.
        events: Events,
    }
}

/// Host, PID namespace, PID, start and rank of a process.
pub type ProcessKey<'a> = (&'a str, u64, u32, u64, Option<u32>);

impl PathRow {
    /// Index for a sum over several of the peer's rails.
    pub const SEVERAL: u32 = u32::MAX;

    /// True for a path without any traffic, such as that of a standby rail.
    fn is_idle(&self) -> bool {
        self.state == PathState::Unknown && self.counters == PathCounters::default()
    }
}

impl PeerRow {
    /// Removes the paths without traffic, apart from the first, which shows that the peer has any.
    pub(crate) fn drop_idle_paths(&mut self) {
        let mut first = true;
        let used = |path: &PathRow| std::mem::take(&mut first) || !path.is_idle();
        self.paths.retain(used);
    }

    /// Adds another peer's counters, with its paths by rail.
    pub(crate) fn merge(&mut self, other: &PeerRow) {
        self.counters.merge(&other.counters);
        other.paths.iter().for_each(|path| self.add_path(path));
    }

    /// Adds a path to its rail's row, which retains only what its paths have in common.
    pub(super) fn add_path(&mut self, path: &PathRow) {
        match self.paths.iter_mut().find(|row| row.rail == path.rail) {
            None => self.paths.push(*path),
            Some(row) => {
                row.counters.merge(&path.counters);
                if row.state != path.state {
                    row.state = PathState::Unknown;
                }
                if row.peer_rail != path.peer_rail {
                    row.peer_rail = PathRow::SEVERAL;
                }
            }
        }
    }
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
        let seen = self.pid_space != 0 && self.pid_space == process::pid_space();
        let here = seen && self.host == process::host_name();
        let ended = || process::pid_start(self.pid) != Some(self.pid_start);
        !self.closed && here && (ended() || process::is_zombie(self.pid))
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
