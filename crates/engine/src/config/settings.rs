//! Settings `FI_MARLINE_*`: the struct, the parser, `docs/settings.md` and the provider's
//! `fi_param_define` calls all come from one table.
//!
//! Settings are read once, when an engine opens. Error texts name the setting, the given value and
//! the allowed values.

pub use crate::config::auth::Auth;
use crate::config::checksum_choice::ChecksumChoice;
use crate::config::experiments;
use crate::config::experiments::rail_checksums::RailChecksums;
use crate::config::experiments::scheme::MulticastScheme;
use crate::config::policy::{RailKinds, RailsPolicy};
use crate::config::ports::PortRange;
use crate::config::secret::SecretText;
pub use crate::config::secret::CARRIED_BY_OPEN_MPI;
use crate::config::value::Value;
use crate::config::verbs_marks::GidIndex;
use crate::config::workers::Workers;
use marline_rails::Partition;
use marline_wire::{Versions, BLOCK_BYTES};

pub use crate::config::document::document;
pub use crate::config::kind::Kind;
pub use crate::config::unknown::{former_in, unknown_in};

/// Prefix of every environment variable of Marline's provider.
pub const PREFIX: &str = "FI_MARLINE_";

/// A row of the table of settings.
pub struct Setting {
    /// Name without the `FI_MARLINE_` prefix, lower case (libfabric upper-cases it).
    pub name: &'static str,
    /// Default as text.
    pub default: &'static str,
    /// One-line help with units.
    pub help: &'static str,
    /// Syntax of the setting's value.
    pub kind: Kind,
    /// The setting is a key of `FI_MARLINE_TEST`, not a variable of its own.
    pub test: bool,
    set: fn(&mut Settings, &str, &Kind) -> bool,
    pub(crate) get: fn(&Settings) -> String,
}

impl Setting {
    /// The environment variable; for a key of `FI_MARLINE_TEST`, that variable and the key.
    pub fn variable(&self) -> String {
        match self.test {
            true => format!("{PREFIX}TEST={}", self.name),
            false => format!("{PREFIX}{}", self.name.to_ascii_uppercase()),
        }
    }

    fn apply(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        if (self.set)(settings, text, &self.kind) {
            return Ok(());
        }
        let (variable, allowed) = (self.variable(), self.kind.allowed());
        if self.kind == Kind::Secret {
            return Err(format!("{variable} cannot be used: allowed is {allowed}"));
        }
        Err(format!(
            "{variable}={text:?} cannot be used: allowed is {allowed} (default: {:?})",
            self.default
        ))
    }
}

macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:literal, $kind:expr $(, $test:ident)?;
    )*) => {
        /// Parsed settings of one engine.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)*
            /// Bit `n` is set when row `n` of [`TABLE`] was given by the user.
            pub given: u128,
        }

        /// All settings.
        pub const TABLE: &[Setting] = &[$(
            Setting {
                name: stringify!($name),
                default: $default,
                help: concat!($($doc),+).trim_ascii(),
                kind: $kind,
                test: !concat!("" $(, stringify!($test))?).is_empty(),
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
/// UDP payload in the smallest datagram that every IPv4 host accepts (576 bytes, RFC 791): room for
/// the headers and one block of 448 bytes, the smallest piece of a message.
const MTU_MIN: u64 = 576 - 28;

// The doc comment of a row is its help text: whole sentences with units.
settings! {
    /// Interfaces, patterns (eth*), local addresses or subnets (10.1.0.0/16) to use as rails by
    /// UDP, with TCP where UDP does not pass. Prefixes: udp: or tcp: restricts a rail to that kind,
    /// xdp: is UDP past the kernel's stack, later: names interfaces that may appear while the job
    /// runs, ud:, rc: or uc: (rc:mlx5_0) ports of InfiniBand and RoCE; shm is memory shared with
    /// other processes of the host. Empty: every usable interface.
    rails: Vec<String> = "", Kind::List;
    /// Use memory shared with other processes of the host as a rail, as if shm had been named.
    shm: bool = "off", Kind::Switch;
    /// In shared memory, a peer that reads the ring slowly reads long messages from the sender's
    /// memory, where the kernel allows it; off: all messages go through the ring.
    one_copy: bool = "on", Kind::Switch, test;
    /// Use of several rails to a peer: stripe (large messages over all), active-standby (one
    /// carries) or prefer=KIND (rails of that kind carry where they reach the peer).
    policy: RailsPolicy = "stripe", Kind::Policy;
    /// UDP (and TCP) port of every rail; peers send from any port; 0: any free port. Suits one
    /// process per host.
    port: u16 = "0", Kind::Number { min: 0, max: 65_535 };
    /// Ports on which peers are received, by UDP, TCP and multicast, for firewalls. Each process of
    /// a host takes one (two where its MPI opens two domains). The same in all processes of a job;
    /// empty: any.
    ports: PortRange = "", Kind::Ports;
    /// Differentiated services code point (DSCP) of all packets by UDP, TCP and multicast, for
    /// switches with quality of service: 34 is AF41, 46 is EF.
    dscp: u8 = "0", Kind::Number { min: 0, max: 63 };
    /// End-to-end payload checksum: a class (strong, fast), a preset from the literature
    /// (newmadeleine-fnv, newmadeleine-crc) or a name; if peers differ, the more trusted is used.
    checksum: ChecksumChoice = "strong", Kind::Checksum;
    /// Rails with a different checksum, as in eth0=none,eth1=crc32c; empty: none.
    checksum_rails: RailChecksums = "", Kind::RailChecksums, test;
    /// Messages shorter than this many bytes have no payload checksum.
    checksum_min_bytes: u64 = "0", Kind::Bytes { min: 0, max: u64::MAX };
    /// Messages longer than this many bytes have no payload checksum; 0: no limit.
    checksum_max_bytes: u64 = "0", Kind::Bytes { min: 0, max: u64::MAX };
    /// Threads that compute slow checksums of long messages beside the application: auto (up to two
    /// on idle cores) or a number of threads on any cores of the job, for checksums of any cost; 0:
    /// none.
    checksum_workers: Workers = "auto", Kind::Workers;
    /// Milliseconds per slice of CLOCK_MONOTONIC, every second of which is without payload
    /// checksums, so that one process measures both; 0: none.
    checksum_slices_ms: u64 = "0", Kind::Number { min: 0, max: 60_000 }, test;
    /// Most payload bytes under one checksum, in steps of 448; 0: as many as a packet holds.
    fragment_max_bytes: u32 = "0", Kind::BytesOrZero { min: BLOCK_BYTES, max: 65_408 }, test;
    /// Damaged packets per million above which a rail is left for a better one; 0: never.
    corrupt_limit_ppm: u32 = "10000", Kind::Number { min: 0, max: 1_000_000 };
    /// File with this machine's profile; empty: that of `marline tune`; none: no profile.
    profile: String = "", Kind::Text;
    /// Socket of `marline xdpd`, which lends rails past the kernel's stack (xdp:) to processes
    /// without the privilege.
    xdpd: String = "/run/marline/xdpd.sock", Kind::Text;
    /// Offer remote memory access and atomics (FI_RMA, FI_ATOMIC) to applications that ask for
    /// them.
    rma: bool = "on", Kind::Switch;
    /// Software reliability: acks, retransmission, failover. Off is for comparison only. All
    /// processes of a job need the same value: peers that differ refuse each other at once.
    reliability: bool = "on", Kind::Switch;
    /// Kinds of rails without software reliability: a lost packet there ends the job with an error
    /// instead of being retransmitted. For comparison, and for networks that lose no packets.
    native: RailKinds = "", Kind::RailKinds, test;
    /// Longest eager message in bytes; longer messages use rendezvous. The default is the profile's
    /// value, if there is a profile.
    eager_max_bytes: usize = "65536", Kind::Bytes { min: 0, max: 64 * KIB };
    /// Bytes of the addresses that libfabric's callers exchange: 64 hold four rails over IPv4 or
    /// two over IPv6 for the first contact, 48 two or one. The same on all hosts.
    address_bytes: usize = "64", Kind::Number { min: 48, max: 64 };
    /// Run a thread that answers peers while the application computes.
    progress_thread: bool = "on", Kind::Switch;
    /// Milliseconds without a progress call after which the progress thread takes over (1 for an
    /// application that is often descheduled).
    tick_ms: u64 = "10", Kind::Number { min: 1, max: 1000 };
    /// Milliseconds of silence (up to 10 s more where links flap or connections crawl) after which
    /// a peer is dead. Time in which no rail of this host is up does not count. Evidence that a
    /// process is gone ends it sooner. `marline run` sets 5000 for jobs that go on without lost
    /// ranks.
    peer_timeout_ms: u64 = "120000", Kind::Number { min: 50, max: 3_600_000 };
    /// Report awaited hosts that are silent on standard error, every 10 s. `marline run` and
    /// `marline env` switch this on.
    say_waits: bool = "off", Kind::Switch;
    /// The death of a peer also ends tagged receives from any source: those that are posted, or
    /// else the next one. `marline run` and `marline env` switch this on.
    any_source_fails: bool = "off", Kind::Switch;
    /// Shortest probe timeout (PTO), in microseconds: no retransmission by timer before.
    pto_floor_us: u64 = "150", Kind::Number { min: 10, max: 1_000_000 }, test;
    /// Longest probe timeout (PTO), in milliseconds: where doubling stops while the peer is heard.
    pto_cap_ms: u64 = "10", Kind::Number { min: 1, max: 10_000 }, test;
    /// Microseconds for which an ack that the peer does not wait for may wait for data.
    ack_delay_us: u64 = "20", Kind::Number { min: 0, max: 100_000 }, test;
    /// Packets received on a path after which an ack leaves immediately.
    ack_every_packets: u32 = "64", Kind::Number { min: 1, max: 4096 }, test;
    /// Initial credit per peer: bytes of eager messages in flight to this process without a
    /// matching receive. Messages beyond it use rendezvous. New peers get a quarter of it once half
    /// of `FI_MARLINE_UNEXPECTED_BYTES` is promised; a peer with half of its credit unread gets
    /// twice as much, up to a quarter of that memory, until then.
    credit_bytes_per_peer: usize = "1M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Bytes of unexpected messages retained for all peers together.
    unexpected_bytes: usize = "64M", Kind::Bytes { min: MIB, max: 64 * GIB };
    /// Bytes of sent messages retained for retransmission, for all peers together.
    log_bytes: usize = "64M", Kind::Bytes { min: MIB, max: 64 * GIB };
    /// Receive buffer in bytes to request from the kernel per rail; the granted size is used.
    receive_buffer_bytes: usize = "8M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Send buffer in bytes to request from the kernel per rail.
    send_buffer_bytes: usize = "4M", Kind::Bytes { min: 64 * KIB, max: GIB };
    /// Connections of a TCP rail above which the least recently used ones are closed until they are
    /// needed again; 0: an eighth of the process's limit of descriptors.
    tcp_connections: usize = "0", Kind::Number { min: 0, max: 1_048_576 };
    /// Connections of an InfiniBand or RoCE rail (`rc:`, `uc:`) above which the least recently used
    /// ones are closed until they are needed again; 0: 150.
    verbs_connections: usize = "0", Kind::Number { min: 0, max: 200 };
    /// Packets sent to a peer as datagrams before it gets a connection (`rc:`, `uc:`), so that
    /// peers with little traffic need no queue pair. 0: connect at once.
    verbs_datagrams: u32 = "0", Kind::Number { min: 0, max: 1_000_000 }, test;
    /// Rails per port of InfiniBand or RoCE (`rc:`, `uc:`, `ud:`): rc:mlx5_0, rc:mlx5_0/2 and so
    /// on, each with memory and queue pairs of its own, which switches may route differently.
    verbs_paths: usize = "1", Kind::Number { min: 1, max: 8 };
    /// Traffic class of packets of InfiniBand and RoCE: the TOS of RoCE version 2, four times a
    /// DSCP.
    verbs_traffic_class: u8 = "0", Kind::Number { min: 0, max: 255 };
    /// Service level of packets of InfiniBand; of RoCE a priority, where adapters map it.
    verbs_service_level: u8 = "0", Kind::Number { min: 0, max: 15 };
    /// Place of the GID (source address) in a RoCE port's table; auto prefers version 2 and IPv4.
    verbs_gid_index: GidIndex = "auto", Kind::GidIndex;
    /// Partition of InfiniBand and RoCE rails, the same in all processes of a job.
    verbs_pkey: Partition = "0", Kind::Partition;
    /// Write long messages (up to 1 MiB, with checksums) from registered buffers, in growing
    /// chunks, into registered buffers of the receiver (`rc:`, `uc:`), instead of registering the
    /// program's memory for each message.
    verbs_staged: bool = "off", Kind::Switch, test;
    /// Let receivers read long messages of up to 1 GiB from their senders' memory (RDMA read,
    /// `rc:`), instead of having them written. The same in all processes of a job.
    verbs_reads: bool = "off", Kind::Switch;
    /// Let the kernel or the card segment large sends into packets (UDP GSO), where supported.
    gso: bool = "on", Kind::Switch, test;
    /// Let the kernel copy long messages from the sender's memory directly into the receiver's,
    /// where large sends arrive in one piece.
    direct: bool = "on", Kind::Switch, test;
    /// Let the kernel join received packets into batches (UDP GRO), where supported.
    gro: bool = "on", Kind::Switch, test;
    /// Longest datagram in bytes of UDP payload; 0: discovered per path.
    mtu: usize = "0", Kind::BytesOrZero { min: MTU_MIN, max: 64_000 };
    /// Long sends of a burst leave from the program's memory and end when their bytes are delivered
    /// or copied. For programs that take the end of a send only as permission to reuse its memory,
    /// as in MPI; a send with FI_DELIVERY_COMPLETE still ends at its delivery.
    borrow: bool = "off", Kind::Switch;
    /// Sends of a burst that leave immediately before later ones are coalesced into packets.
    aggregate_after: u32 = "2", Kind::Number { min: 0, max: 1_000_000 }, test;
    /// Packets carry tags by a key of the job, and packets without the right tag have no effect
    /// (docs/design/security.md); with payload, no payload can be replaced by a chosen one with the
    /// same sum; with encrypt, no host on the way can read payloads either, which costs copies of
    /// long messages. The same in all processes of a job. Where a key is given and this is not, it
    /// is on.
    auth: Auth = "off", Kind::Auth;
    /// The job's key, random, the same in all processes of a job and in no other. Not for command
    /// lines, which every user of a host can read.
    key: SecretText = "", Kind::Secret;
    /// File with the job's key, readable by its owner alone (mode 0600), who runs the job.
    key_file: String = "", Kind::Text;
    /// Scheme of acknowledgement and repair for multicast broadcasts; usual depends on the number
    /// of ranks.
    multicast_scheme: MulticastScheme = "usual", Kind::Scheme, test;
    /// Processes of one host share the sockets of multicast groups: one process reads for all.
    multicast_share: bool = "off", Kind::Switch, test;
    /// Version of the protocol that this process pretends to speak, to show what others do; 0:
    /// those of the library.
    wire_version: u8 = "0", Kind::Number { min: 0, max: 31 }, test;
    /// The oldest version that it pretends to speak; 0: only wire_version.
    wire_oldest: u8 = "0", Kind::Number { min: 0, max: 31 }, test;
    /// Script of faults to inject below the protocol, for tests; empty: none.
    faults: String = "", Kind::Text;
    /// Directory for statistics pages; empty or missing: /dev/shm, with removal at close.
    stats_dir: String = "", Kind::Text;
    /// Rank 0 (and a process of unknown rank) ends with its traffic per rail and all problems on
    /// standard error. `marline env` switches this on.
    summary: bool = "off", Kind::Switch;
    /// Settings of experiments: key=value pairs separated by commas, as in gso=off,ack_delay_us=0.
    test: String = "", Kind::Text;
}

impl Settings {
    /// Reads every row through `lookup`, which takes names as in the table. Absent and empty values
    /// mean the default. The error is a text for the user about the first value not allowed.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let tests = experiments::parse(
            &lookup("test").unwrap_or_default(),
            TABLE
                .iter()
                .filter(|row| row.test)
                .map(|row| (row.name, row.kind)),
        )?;
        for row in TABLE {
            let text = match tests.iter().find(|(name, _)| *name == row.name) {
                Some((_, text)) => text.clone(),
                None => lookup(row.name)
                    .or_else(|| lookup(experiments::former(row.name)?))
                    .unwrap_or_default(),
            };
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

    /// The versions of the protocol that the process speaks.
    pub fn versions(&self) -> Versions {
        match (self.wire_oldest, self.wire_version) {
            (_, 0) => Versions::OURS,
            (0, version) => Versions::only(version),
            (oldest, newest) => Versions { oldest, newest },
        }
    }

    /// True if the user gave the setting of this name.
    pub fn was_given(&self, name: &str) -> bool {
        self.given & bit(name) != 0
    }

    /// Milliseconds without an ack after which a connection is made anew, and without a packet
    /// after which a peer that was never heard counts as dead: 5 s, or the peer timeout if the user
    /// has set it. A peer outlives its connections.
    pub fn rail_timeout_ms(&self) -> u64 {
        match self.was_given("peer_timeout_ms") {
            true => self.peer_timeout_ms,
            false => self.peer_timeout_ms.min(RAIL_TIMEOUT_MS),
        }
    }

    /// Replaces the rails, whether or not the user gave some.
    pub fn replace_rails(&mut self, rails: Vec<String>) {
        self.given &= !bit("rails");
        self.rails = rails;
    }

    /// The settings in force that differ from their defaults: variable and value.
    pub fn differing(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let default = Settings::default();
        // The keys of this setting are rows of their own.
        let rows = TABLE.iter().filter(|row| row.name != "test");
        let rows = rows.filter(move |row| (row.get)(self) != (row.get)(&default));
        rows.map(|row| (row.variable(), (row.get)(self)))
    }

    /// Lists every setting in force, one per line: variable, value, and origin of the value.
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

/// Value of [`Settings::rail_timeout_ms`].
const RAIL_TIMEOUT_MS: u64 = 5_000;

/// Bit of a setting in [`Settings::given`].
fn bit(name: &str) -> u128 {
    let row = TABLE.iter().position(|row| row.name == name);
    row.map_or(0, |n| 1 << n)
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod test;
