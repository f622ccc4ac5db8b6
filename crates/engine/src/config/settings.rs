//! Settings `FI_MARLINE_*`: one table, from which the struct, the parser, `docs/settings.md` and
//! the provider's `fi_param_define` calls are made.
//!
//! A row is read once, when an engine opens. Errors are texts for people: they name the setting,
//! the value that was given and what is allowed.

use crate::config::choice::{parse_checksum, ChecksumChoice};
use crate::config::policy::{RailKinds, RailsPolicy};
use crate::config::ports::PortRange;
use crate::config::scheme::MulticastScheme;
use crate::config::workers::Workers;
use marline_checksum::Algorithm;
use marline_wire::{GRANULE, RAILS_MAX};

pub use crate::config::document::document;
pub use crate::config::unknown::unknown_in;

/// The beginning of every environment variable of Marline's provider.
pub const PREFIX: &str = "FI_MARLINE_";

/// Checksum algorithms of single rails: interface (or address, as in `rails`) and algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailChecksums(pub Vec<(String, Algorithm)>);

impl RailChecksums {
    /// The algorithm numbers of rails by index; `None`: what is agreed with the peer.
    pub fn by_rail(&self, rails: &[String]) -> [Option<u8>; RAILS_MAX] {
        let mut out = [None; RAILS_MAX];
        for (slot, rail) in out.iter_mut().zip(rails) {
            let row = self.0.iter().find(|(name, _)| name == rail);
            *slot = row.map(|&(_, algorithm)| algorithm as u8);
        }
        out
    }

    /// Names that no rail has.
    pub fn unknown<'a>(&'a self, rails: &'a [String]) -> impl Iterator<Item = &'a str> {
        let names = self.0.iter().map(|(name, _)| name);
        names.filter(|n| !rails.contains(n)).map(String::as_str)
    }
}

const SWITCH: &[(&str, bool)] = &[
    ("on", true),
    ("off", false),
    ("1", true),
    ("0", false),
    ("yes", true),
    ("no", false),
    ("true", true),
    ("false", false),
];

/// The kind of texts that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Comma-separated names.
    List,
    /// Any text.
    Text,
    /// `on` or `off`.
    Switch,
    /// A [`ChecksumChoice`].
    Checksum,
    /// [`RailChecksums`].
    RailChecksums,
    /// A [`RailsPolicy`].
    Policy,
    /// [`RailKinds`].
    RailKinds,
    /// A [`MulticastScheme`].
    Scheme,
    /// A [`PortRange`].
    Ports,
    /// [`Workers`].
    Workers,
    /// A whole number within bounds.
    Number {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// Bytes within bounds; the suffixes `K`, `M`, `G` mean KiB, MiB, GiB.
    Bytes {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// As [`Kind::Bytes`], or 0 for something else than so many bytes.
    BytesOrZero {
        /// Smallest value allowed but 0.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
}

impl Kind {
    /// The allowed texts, in words.
    pub fn allowed(&self) -> String {
        match *self {
            Kind::List => "names separated by commas".to_owned(),
            Kind::Text => "any text".to_owned(),
            Kind::Switch => "on or off".to_owned(),
            Kind::Checksum => ChecksumChoice::names(),
            Kind::RailChecksums => "rail=algorithm pairs separated by commas".to_owned(),
            Kind::Policy => RailsPolicy::names(),
            Kind::RailKinds => RailKinds::all(),
            Kind::Scheme => MulticastScheme::names(),
            Kind::Ports => PortRange::allowed(),
            Kind::Workers => Workers::allowed(),
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Bytes { min, max } => {
                format!("bytes from {min} to {max}, with K, M or G for KiB, MiB, GiB")
            }
            Kind::BytesOrZero { min, max } => {
                format!("0, or {}", Kind::Bytes { min, max }.allowed())
            }
        }
    }

    fn number(&self, text: &str) -> Option<u64> {
        let (least, min, max) = match *self {
            Kind::Number { min, max } | Kind::Bytes { min, max } => (min, min, max),
            Kind::BytesOrZero { min, max } => (0, min, max),
            _ => return None,
        };
        let shift = match text.as_bytes().last()?.to_ascii_lowercase() {
            b'k' => 10,
            b'm' => 20,
            b'g' => 30,
            _ => 0,
        };
        let scaled = shift != 0;
        if scaled && matches!(self, Kind::Number { .. }) {
            return None;
        }
        let digits = if scaled {
            &text[..text.len() - 1]
        } else {
            text
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None; // `parse` would take a sign
        }
        let value = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
        (value == least || (min..=max).contains(&value)).then_some(value)
    }
}

/// A type of a field of [`Settings`].
trait Value: Sized {
    fn from_text(text: &str, kind: &Kind) -> Option<Self>;
    fn to_text(&self) -> String;
}

impl Value for Vec<String> {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        let parts = text.split(',').map(str::trim);
        Some(parts.filter(|p| !p.is_empty()).map(str::to_owned).collect())
    }
    fn to_text(&self) -> String {
        self.join(",")
    }
}

impl Value for String {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        Some(text.to_owned())
    }
    fn to_text(&self) -> String {
        self.clone()
    }
}

macro_rules! value_by_name {
    ($($type:ty, $choices:ident;)*) => { $(
        impl Value for $type {
            fn from_text(text: &str, _: &Kind) -> Option<Self> {
                let row = $choices.iter().find(|(n, _)| n.eq_ignore_ascii_case(text));
                row.map(|&(_, value)| value)
            }
            fn to_text(&self) -> String {
                let row = $choices.iter().find(|(_, value)| value == self);
                row.map_or_else(String::new, |(name, _)| (*name).to_owned())
            }
        }
    )* };
}

value_by_name! {
    bool, SWITCH;
}

impl Value for RailsPolicy {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        RailsPolicy::parse(text)
    }
    fn to_text(&self) -> String {
        self.name()
    }
}

impl Value for MulticastScheme {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        MulticastScheme::parse(text)
    }
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for PortRange {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        PortRange::parse(text)
    }
    fn to_text(&self) -> String {
        self.text()
    }
}

impl Value for Workers {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        Workers::parse(text)
    }
    fn to_text(&self) -> String {
        self.name()
    }
}

impl Value for ChecksumChoice {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        ChecksumChoice::parse(text)
    }
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for RailKinds {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        RailKinds::parse(text)
    }
    fn to_text(&self) -> String {
        self.names()
    }
}

impl Value for RailChecksums {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        let pairs = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        let pair = |text: &str| {
            let (rail, algorithm) = text.split_once('=')?;
            let algorithm = parse_checksum(algorithm.trim())?;
            let rail = rail.trim();
            (!rail.is_empty()).then(|| (rail.to_owned(), algorithm))
        };
        pairs
            .map(pair)
            .collect::<Option<Vec<_>>>()
            .map(RailChecksums)
    }
    fn to_text(&self) -> String {
        let pairs = self
            .0
            .iter()
            .map(|(rail, a)| format!("{rail}={}", a.name()));
        pairs.collect::<Vec<_>>().join(",")
    }
}

macro_rules! value_by_number {
    ($($type:ty),*) => { $(
        impl Value for $type {
            fn from_text(text: &str, kind: &Kind) -> Option<Self> {
                <$type>::try_from(kind.number(text)?).ok()
            }
            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

value_by_number!(u16, u32, u64, usize);

/// One row of the table of settings.
pub struct Setting {
    /// Name without the `FI_MARLINE_` prefix, lower case (libfabric upper-cases it).
    pub name: &'static str,
    /// Default as text.
    pub default: &'static str,
    /// One-line help with units.
    pub help: &'static str,
    /// The kind of texts that it takes.
    pub kind: Kind,
    set: fn(&mut Settings, &str, &Kind) -> bool,
    pub(crate) get: fn(&Settings) -> String,
}

impl Setting {
    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase())
    }

    fn apply(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        if (self.set)(settings, text, &self.kind) {
            return Ok(());
        }
        let (variable, allowed) = (self.variable(), self.kind.allowed());
        Err(format!(
            "{variable}={text:?} cannot be used: allowed is {allowed} (default: {:?})",
            self.default
        ))
    }
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal, $kind:expr;)*) => {
        /// Parsed settings of one engine.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)*
            /// Bit `n` is set when row `n` of [`TABLE`] was given by the user.
            pub given: u64,
        }

        /// All settings.
        pub const TABLE: &[Setting] = &[$(
            Setting {
                name: stringify!($name),
                default: $default,
                help: concat!($($doc),+).trim_ascii(),
                kind: $kind,
                set: |settings, text, kind| match <$type>::from_text(text, kind) {
                    Some(value) => {
                        settings.$name = value;
                        true
                    }
                    None => false,
                },
                get: |settings| settings.$name.to_text(),
            },
        )*];

        impl Default for Settings {
            fn default() -> Settings {
                Settings {
                    $($name: <$type>::from_text($default, &$kind)
                        .expect("a test parses all defaults"),)*
                    given: 0,
                }
            }
        }
    };
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// UDP payload of the smallest packet that every IPv4 host takes (576 B): room for the heads and
/// one granule, below which no message could be cut into packets.
const MTU_MIN: u64 = 576 - 28;

// The help of a row is its doc comment: one sentence per line, units said.
settings! {
    /// Interfaces, patterns (eth*), local addresses or subnets (10.1.0.0/16) to use as rails by
    /// UDP, with TCP where UDP does not pass; behind udp: or tcp: (tcp:eth0) by this alone; behind
    /// later: (later:eth1, later:eth*, or this alone) what may come in mid-run; behind ud:, rc: or
    /// uc: (rc:mlx5_0) ports of InfiniBand and RoCE by verbs; and shm for memory shared with the
    /// other processes of the host; empty: every usable interface.
    rails: Vec<String> = "", Kind::List;
    /// Memory shared with the other processes of the host as a rail, as if shm had been named.
    shm: bool = "off", Kind::Switch;
    /// By shared memory, long messages are read out of the sender's memory, where the kernel allows
    /// it, by a peer that is slow to read the ring; off: all of them go through the ring.
    one_copy: bool = "on", Kind::Switch;
    /// How the rails to a peer share the work: stripe (large messages over all rails),
    /// active-standby (one works and the others stand by) or prefer=KIND (those of a kind work
    /// where they reach, as in prefer=tcp).
    policy: RailsPolicy = "stripe", Kind::Policy;
    /// UDP (and TCP) port of every rail, to which peers send from any port; 0: any free one. Serves
    /// one process per host.
    port: u16 = "0", Kind::Number { min: 0, max: 65_535 };
    /// Ports of everything that peers send to, by UDP, TCP and multicast, for firewalls: each
    /// process of a host takes one (two where its MPI opens two domains), and a range that is too
    /// small is an error; the same in all processes of a job; empty: any.
    ports: PortRange = "", Kind::Ports;
    /// Payload checksum, end to end: a class (strong, fast), a choice of the papers'
    /// (newmadeleine-fnv, newmadeleine-crc) or a name; of two peers' wishes the more trusted holds.
    checksum: ChecksumChoice = "strong", Kind::Checksum;
    /// Rails with a checksum of their own instead, as in eth0=none,eth1=crc32c; empty: no rail.
    checksum_rails: RailChecksums = "", Kind::RailChecksums;
    /// Messages shorter than so many bytes travel without a payload checksum.
    checksum_min_bytes: u64 = "0", Kind::Bytes { min: 0, max: u64::MAX };
    /// Messages longer than so many bytes travel without a payload checksum; 0: none does.
    checksum_max_bytes: u64 = "0", Kind::Bytes { min: 0, max: u64::MAX };
    /// Threads that make slow sums of long messages beside the application: auto (one or two, on
    /// cores that nobody uses; none where there are none) or as many as this, on any cores of the
    /// job, whatever the sums cost; 0: none.
    checksum_workers: Workers = "auto", Kind::Workers;
    /// For measurements: in every second slice of so many ms of CLOCK_MONOTONIC messages travel
    /// without a payload checksum, so that both ways are seen in one process; 0: never.
    checksum_slices_ms: u64 = "0", Kind::Number { min: 0, max: 60_000 };
    /// Most payload bytes under one checksum, in steps of 448; 0: as many as a packet holds.
    fragment_max_bytes: u32 = "0", Kind::BytesOrZero { min: GRANULE, max: 65_408 };
    /// Damaged packets per million above which a rail is left for a better one; 0: never.
    corrupt_limit_ppm: u32 = "10000", Kind::Number { min: 0, max: 1_000_000 };
    /// File with this machine's profile; empty: where `marline tune` keeps it; none: no profile.
    profile: String = "", Kind::Text;
    /// Offer one-sided operations to applications: remote memory access and atomics (FI_RMA and
    /// FI_ATOMIC).
    rma: bool = "off", Kind::Switch;
    /// Software reliability: acks, retransmission, failover. off is for comparison only. All
    /// processes of a job need the same: peers that differ refuse each other at first contact.
    reliability: bool = "on", Kind::Switch;
    /// Kinds of rails without software reliability: what is lost on one of them ends the job with
    /// an error, instead of being sent again. For comparison, and for networks that lose nothing.
    native: RailKinds = "", Kind::RailKinds;
    /// Largest message in bytes that is sent at once; above, sender and receiver meet first. Unless
    /// set, what the profile says.
    eager_max_bytes: usize = "65536", Kind::Bytes { min: 0, max: 64 * KIB };
    /// Bytes of the addresses that libfabric's callers exchange (not of text): 64 name up to four
    /// rails over IPv4 for the first contact or two over IPv6, 48 two or one. The same on all
    /// hosts; for programs that have no room for 64.
    address_bytes: usize = "64", Kind::Number { min: 48, max: 64 };
    /// The thread that answers peers while the application computes.
    progress_thread: bool = "on", Kind::Switch;
    /// Milliseconds without a progress call after which the progress thread takes over (1 where an
    /// application is often without its processor).
    tick_ms: u64 = "10", Kind::Number { min: 1, max: 1000 };
    /// Milliseconds of silence until a peer is dead for it (and 10 s more: links flap, connections
    /// crawl). Time in which no rail of this host is up does not count. Evidence that a process is
    /// gone ends it sooner, and refusals of its host that last for 4 s, or for this time where it
    /// is shorter. `marline run` sets 5000 for jobs that go on without ranks that they lost.
    peer_timeout_ms: u64 = "120000", Kind::Number { min: 50, max: 3_600_000 };
    /// Say on standard error, too, for which hosts one waits that are silent for 10 s, again each
    /// 10 s. `marline run` and `marline env` switch it on.
    say_waits: bool = "off", Kind::Switch;
    /// The death of a peer ends tagged receives from anyone, too: those that wait, else the next
    /// one. `marline run` and `marline env` switch it on.
    any_source_fails: bool = "off", Kind::Switch;
    /// Shortest repair timer, in microseconds: no retransmission by timer before.
    repair_floor_us: u64 = "150", Kind::Number { min: 10, max: 1_000_000 };
    /// Longest repair timer, in milliseconds: where doubling stops while the peer is heard.
    repair_cap_ms: u64 = "10", Kind::Number { min: 1, max: 10_000 };
    /// Microseconds that an ack which nobody waits for may wait for data to ride on.
    ack_delay_us: u64 = "20", Kind::Number { min: 0, max: 100_000 };
    /// Packets received on a path after which an ack leaves without waiting.
    ack_every_packets: u32 = "64", Kind::Number { min: 1, max: 4096 };
    /// Bytes of eager messages that a peer may have under way to us unmatched, at first; a quarter
    /// of it from the peer on with which that would be half of `FI_MARLINE_UNEXPECTED_BYTES`. A
    /// peer that has half of it unread gets twice as much, up to a quarter of
    /// `FI_MARLINE_UNEXPECTED_BYTES`, while half of that is not promised. Messages beyond it ask
    /// first.
    credit_bytes_per_peer: usize = "1M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Bytes of unexpected messages kept for all peers together.
    unexpected_bytes: usize = "64M", Kind::Bytes { min: MIB, max: 64 * GIB };
    /// Bytes of sent messages kept for retransmission, for all peers together.
    log_bytes: usize = "64M", Kind::Bytes { min: MIB, max: 64 * GIB };
    /// Receive buffer in bytes asked of the kernel per rail; what it gives is what counts.
    receive_buffer_bytes: usize = "8M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Send buffer in bytes asked of the kernel per rail.
    send_buffer_bytes: usize = "4M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Connections of a TCP rail beyond which those that were used least lately are closed, until
    /// they are wanted again; 0: an eighth of the descriptors that the process may have.
    tcp_connections: usize = "0", Kind::Number { min: 0, max: 1_048_576 };
    /// Connections of a rail of InfiniBand or RoCE (`rc:`, `uc:`) beyond which those that were sent
    /// on least lately are closed, until they are wanted again; 0: 150. A rail has 200 at most.
    verbs_connections: usize = "0", Kind::Number { min: 0, max: 200 };
    /// Packets that leave for a peer as datagrams before it gets a connection of its own, on a rail
    /// of InfiniBand or RoCE (`rc:`, `uc:`), whose packets are of the MTU and may be lost then; so
    /// peers that are spoken to seldom need no queue pair. 0: a connection from the start.
    verbs_datagrams: u32 = "0", Kind::Number { min: 0, max: 1_000_000 };
    /// Rails on each port of InfiniBand or RoCE (`rc:`, `uc:`, `ud:`): each has queue pairs of its
    /// own, which switches may send other ways, and memory as of a port of its own. The others of
    /// rc:mlx5_0 are called rc:mlx5_0/2 and so on.
    verbs_paths: usize = "1", Kind::Number { min: 1, max: 8 };
    /// Copy long messages into registered buffers, in chunks that grow by the profile's numbers,
    /// and write them into such of the receiver (up to 1 MiB and with sums), on rails of InfiniBand
    /// or RoCE (`rc:`, `uc:`), instead of registering the program's memory for each.
    verbs_staged: bool = "off", Kind::Switch;
    /// Have receivers read long messages of up to 1 GiB from their senders' memory (RDMA read), on
    /// reliable connections of InfiniBand or RoCE (`rc:`), instead of having them written; the same
    /// in all processes of a job.
    verbs_reads: bool = "off", Kind::Switch;
    /// Let the kernel or the card cut large sends into packets (UDP GSO), where it can.
    gso: bool = "on", Kind::Switch;
    /// Let the kernel take long messages from the sender's memory and put them into the receiver's
    /// without a copy on the way, where large sends arrive as they were sent.
    direct: bool = "on", Kind::Switch;
    /// Let the kernel hand over received packets in batches (UDP GRO), where it can.
    gro: bool = "on", Kind::Switch;
    /// Most bytes of one datagram, UDP payload; 0: found by the path's MTU.
    mtu: usize = "0", Kind::BytesOrZero { min: MTU_MIN, max: 64_000 };
    /// Long sends of a burst leave from the program's memory and end when their bytes are delivered
    /// or kept elsewhere. For programs to which the end of a send only says that their memory is
    /// free, as in MPI; for others a send that is to be delivered ends when it is.
    borrow: bool = "off", Kind::Switch;
    /// Sends of a burst that leave at once before later ones are collected into packets.
    aggregate_after: u32 = "2", Kind::Number { min: 0, max: 1_000_000 };
    /// How broadcasts by multicast are acknowledged and repaired, to compare; the usual scheme fits
    /// the number of ranks. All ranks of a communicator need the same: else it has no multicast.
    multicast_scheme: MulticastScheme = "usual", Kind::Scheme;
    /// Processes of one host share the sockets of multicast groups: one reads for all.
    multicast_share: bool = "off", Kind::Switch;
    /// Script of faults to inject below the protocol, for tests; empty: none.
    faults: String = "", Kind::Text;
    /// Directory where statistics pages are kept; empty, or not there: /dev/shm, removed at close.
    stats_dir: String = "", Kind::Text;
    /// At its end rank 0 (and a process whose rank is not known) writes to standard error what it
    /// sent over which rails, and what went wrong. `marline env` switches it on.
    summary: bool = "off", Kind::Switch;
}

impl Settings {
    /// Reads every row through `lookup` (name as in the table); an error is a text for people.
    /// Absent and empty mean the default.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for row in TABLE {
            let text = lookup(row.name).unwrap_or_default();
            let text = text.trim();
            if !text.is_empty() {
                row.apply(&mut settings, text)?;
                settings.given |= bit(row.name);
            }
        }
        settings.check()?;
        Ok(settings)
    }

    /// Reads the `FI_MARLINE_*` variables of this process's environment.
    pub fn from_env() -> Result<Settings, String> {
        Settings::from_lookup(|name| {
            let value = std::env::var_os(format!("{PREFIX}{}", name.to_ascii_uppercase()))?;
            Some(value.to_string_lossy().into_owned())
        })
    }

    /// True if the user gave the row of this name.
    pub fn was_given(&self, name: &str) -> bool {
        self.given & bit(name) != 0
    }

    /// Milliseconds after which a connection on which nothing is acknowledged is made anew, and
    /// somebody who was never heard is not expected any more: 5 s, or as long as a peer may be
    /// silent, if the user has said that. A peer survives its connections.
    pub fn rail_timeout_ms(&self) -> u64 {
        match self.was_given("peer_timeout_ms") {
            true => self.peer_timeout_ms,
            false => self.peer_timeout_ms.min(RAIL_TIMEOUT_MS),
        }
    }

    /// Takes these rails, whatever the user gave.
    pub fn replace_rails(&mut self, rails: Vec<String>) {
        self.given &= !bit("rails");
        self.rails = rails;
    }

    /// Every setting in force, one per line: variable, value, and where the value is from.
    pub fn show(&self) -> String {
        let mut out = String::new();
        for row in TABLE {
            let given = self.was_given(row.name);
            let origin = if given { "given" } else { "default" };
            let value = (row.get)(self);
            out += &format!("{}={value} ({origin})\n", row.variable());
        }
        out
    }
}

/// See [`Settings::rail_timeout_ms`].
const RAIL_TIMEOUT_MS: u64 = 5_000;

/// The bit of a row in [`Settings::given`].
fn bit(name: &str) -> u64 {
    let row = TABLE.iter().position(|row| row.name == name);
    row.map_or(0, |n| 1 << n)
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod test;
