//! Layout of a statistics page. All words are 64-bit in the machine's byte order:
//!
//! ```text
//! header          HEADER_WORDS, see `at`
//! endpoints       ENDPOINTS_MAX numbers of the engine's own
//! process         ProcessCounters
//! rails           RAILS_MAX x  name (4), address (6), up and standby, RailCounters
//! others          one peer row, of up to RAILS_MAX paths, for all peers without one
//! outages, doubts two rings of records (`events`), each with a sequence number of its own
//! peers           consecutive rows: endpoint, address (6), state and checksum, paths,
//!                 PeerCounters, and as many paths as the row says: rails, state, PathCounters
//! ```

use super::ring::SLOT_WORDS;
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
pub use marline_wire::RAILS_MAX;

/// First word of every page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MARLINES");
/// Version of the layout; readers check the word counts, too. The header words that name the owner
/// keep their places, so that later versions can remove the pages of killed processes.
pub const VERSION: u64 = 3;
/// Endpoints that a page names: the first ones opened, by which peers know the engine. Open MPI 5
/// opens two, a libfabric application any number.
pub const ENDPOINTS_MAX: usize = 16;
/// Most paths shown per peer: the protocol's limit.
pub const PATHS_MAX: usize = marline_proto::PATHS_MAX;
/// Most peers with a row of their own.
pub const PEERS_MAX: usize = 1024;
/// Room for the paths of all peers together.
pub const PEER_PATHS_MAX: usize = 16 * PEERS_MAX;
/// Records in the ring of outages: enough for the last minutes of a job on a bad network, and few
/// enough for a page in each process.
pub const OUTAGES_MAX: usize = 256;
/// Records in the ring of suspicions, chosen like [`OUTAGES_MAX`].
pub const SUSPECTS_MAX: usize = 64;

/// Words of the header.
pub mod at {
    /// [`super::MAGIC`], written last.
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Odd while the page is being written.
    pub const SEQUENCE: usize = 2;
    /// PID in its own namespace.
    pub const PID: usize = 3;
    /// Start of the process in ticks since boot, unlike that of a later process with the same PID.
    pub const PID_START: usize = 4;
    /// Inode of the PID namespace.
    pub const PID_SPACE: usize = 5;
    /// Number of endpoints opened, including closed ones; the page names the first of them.
    pub const ENDPOINTS: usize = 6;
    /// Rank in `MPI_COMM_WORLD` plus one; 0: unknown.
    pub const RANK: usize = 7;
    /// Nanoseconds since 1970 when the engine was opened.
    pub const OPENED: usize = 8;
    /// Nanoseconds since 1970 of the last update.
    pub const PUBLISHED: usize = 9;
    /// 1 after the engine has closed.
    pub const CLOSED: usize = 10;
    /// Rail rows in use.
    pub const RAILS: usize = 11;
    /// Peer rows in use.
    pub const PEERS: usize = 12;
    /// Number of peers summed in the "others" row.
    pub const PEERS_BEYOND: usize = 13;
    /// Word counts of the four groups of counters.
    pub const GROUPS: usize = 14;
    /// Host name, [`super::HOST_WORDS`].
    pub const HOST: usize = 18;
    /// Disabled protection ([`Disabled`](crate::stats::disabled::Lacks)).
    pub const DISABLED: usize = 26;
    /// Number of peers whose paths are summed by rail for lack of room.
    pub const PEERS_SUMMED: usize = 27;
    /// Number of records written to the ring of outages.
    pub const OUTAGES: usize = 28;
    /// Number of records written to the ring of suspicions.
    pub const SUSPECTS: usize = 29;
    /// Number of the `marline run` that started the process; 0: none.
    pub const RUN: usize = 30;
}

/// First version whose header names the owner in the present places.
pub const OWNER_SINCE: u64 = 2;
/// Words of the header, including spare ones.
pub const HEADER_WORDS: usize = 32;
/// Words of a host's name.
pub const HOST_WORDS: usize = 8;
/// Words of a rail's name.
pub const NAME_WORDS: usize = 4;
/// Words of an address as text: an IPv6 address with port and brackets has at most 47 bytes.
pub const ADDRESS_WORDS: usize = 6;

/// Words of each group of counters.
pub const GROUP_WORDS: [usize; 4] = [
    ProcessCounters::ROWS.len(),
    RailCounters::ROWS.len(),
    PeerCounters::ROWS.len(),
    PathCounters::ROWS.len(),
];

/// Words before the counters of a rail: name, address, up.
pub const RAIL_HEAD_WORDS: usize = NAME_WORDS + ADDRESS_WORDS + 1;
/// Words of a rail.
pub const RAIL_WORDS: usize = RAIL_HEAD_WORDS + GROUP_WORDS[1];
/// Words before the counters of a path: rails, state.
pub const PATH_HEAD_WORDS: usize = 2;
/// Words of a path.
pub const PATH_WORDS: usize = PATH_HEAD_WORDS + GROUP_WORDS[3];
/// Words before the counters of a peer: endpoint, address, state and checksum, paths.
pub const PEER_HEAD_WORDS: usize = 1 + ADDRESS_WORDS + 2;
/// Position of the checksum in a peer's state word: its number plus one, 0 if unknown.
pub const CHECKSUM_SHIFT: u32 = 32;
/// Words before the paths of a peer.
pub const PEER_PATHS_AT: usize = PEER_HEAD_WORDS + GROUP_WORDS[2];
/// Words of a peer with `paths` paths.
pub const fn peer_words(paths: usize) -> usize {
    PEER_PATHS_AT + paths * PATH_WORDS
}

/// First word of the endpoint numbers.
pub const ENDPOINTS_AT: usize = HEADER_WORDS;
/// First word of the process's counters.
pub const PROCESS_AT: usize = ENDPOINTS_AT + ENDPOINTS_MAX;
/// First word of the rails.
pub const RAILS_AT: usize = PROCESS_AT + GROUP_WORDS[0];
/// First word of the "others" row.
pub const OTHERS_AT: usize = RAILS_AT + RAILS_MAX * RAIL_WORDS;
/// First word of the ring of outages.
pub const OUTAGES_AT: usize = OTHERS_AT + peer_words(RAILS_MAX);
/// First word of the ring of doubts.
pub const SUSPECTS_AT: usize = OUTAGES_AT + OUTAGES_MAX * SLOT_WORDS;
/// First word of the peers.
pub const PEERS_AT: usize = SUSPECTS_AT + SUSPECTS_MAX * SLOT_WORDS;
/// Words of the longest page.
pub const PAGE_WORDS_MAX: usize =
    PEERS_AT + PEERS_MAX * peer_words(0) + PEER_PATHS_MAX * PATH_WORDS;
