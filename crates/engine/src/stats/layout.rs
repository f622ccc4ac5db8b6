//! Layout of a statistics page. All words are 64-bit in the machine's byte order:
//!
//! ```text
//! header             HEADER_WORDS, see `at`
//! outages, suspects  two rings of records (`events`), each with a sequence number of its own
//! body               a `JobPage` as its fields and those of its rows follow each other (`words`)
//! ```

use super::ring::SLOT_WORDS;
use super::words::TEXT_WORDS;
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
pub use marline_wire::RAILS_MAX;

/// First word of every page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MARLINES");
/// Version of the layout; readers check the word counts, too. The header words that name the owner
/// keep their places, so that later versions can remove the pages of killed processes.
pub const VERSION: u64 = 7;
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

/// Most settings that a page shows: far more than a job needs.
pub const SETTINGS_MAX: usize = 32;
/// Words of a setting with its value.
pub const SETTING_WORDS: usize = 16;
/// Most intervals of a rail's history: a curve as wide as a report.
pub const HISTORY_SLOTS: usize = 128;

/// Words of the header.
pub mod at {
    /// [`super::MAGIC`], written last.
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Odd while the page is being written.
    pub const SEQUENCE: usize = 2;
    /// PID of the process in its own PID namespace.
    pub const PID: usize = 3;
    /// Start of the process in ticks since boot, unlike that of a later process with the same PID.
    pub const PID_START: usize = 4;
    /// Inode of the PID namespace.
    pub const PID_SPACE: usize = 5;
    /// Nanoseconds since 1970 of the last update.
    pub const PUBLISHED: usize = 9;
    /// 1 after the engine has closed.
    pub const CLOSED: usize = 10;
    /// Word counts of the four groups of counters.
    pub const GROUPS: usize = 14;
    /// Host name, of [`super::HOST_WORDS`] words.
    pub const HOST: usize = 18;
    /// Number of records written to the ring of outages.
    pub const OUTAGES: usize = 28;
    /// Number of records written to the ring of suspicions.
    pub const SUSPECTS: usize = 29;
}

/// First version whose header names the owner in the present places.
pub const OWNER_SINCE: u64 = 2;
/// Words of the header, including spare ones.
pub const HEADER_WORDS: usize = 32;
/// Words of a host's name.
pub const HOST_WORDS: usize = 8;
/// Words of each group of counters.
pub const GROUP_WORDS: [usize; 4] = [
    ProcessCounters::ROWS.len(),
    RailCounters::ROWS.len(),
    PeerCounters::ROWS.len(),
    PathCounters::ROWS.len(),
];

/// First word of the ring of outages.
pub const OUTAGES_AT: usize = HEADER_WORDS;
/// First word of the ring of suspicions.
pub const SUSPECTS_AT: usize = OUTAGES_AT + OUTAGES_MAX * SLOT_WORDS;
/// First word of the body.
pub const BODY_AT: usize = SUSPECTS_AT + SUSPECTS_MAX * SLOT_WORDS;
/// Most words of a path.
const PATH_WORDS: usize = 3 + GROUP_WORDS[3];
/// Most words of a rail.
const RAIL_WORDS: usize = 2 * TEXT_WORDS + 3 + GROUP_WORDS[1];
/// Most words of a peer without its paths.
const PEER_WORDS: usize = TEXT_WORDS + 5 + GROUP_WORDS[2];
/// Most words of a page without peers and history, which are allocated when it is made.
pub const ROOM_WORDS: usize = BODY_AT
    + (19 + TEXT_WORDS + ENDPOINTS_MAX + GROUP_WORDS[0] + 3 * marline_proto::WAIT_CLASSES)
    + SETTINGS_MAX * SETTING_WORDS
    + RAILS_MAX * (RAIL_WORDS + PATH_WORDS)
    + PEER_WORDS;
/// Words of the longest page.
pub const PAGE_WORDS_MAX: usize =
    ROOM_WORDS + PEERS_MAX * PEER_WORDS + PEER_PATHS_MAX * PATH_WORDS + HISTORY_WORDS;
/// Most words of a history.
const HISTORY_WORDS: usize = RAILS_MAX * (2 + 2 * HISTORY_SLOTS);
