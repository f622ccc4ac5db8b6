//! Configuration of a node; times in nanoseconds.

use crate::base::mutation::Mutation;
use crate::base::pipeline::Pipeline;
use marline_wire::{
    Header, RailAddr, RailKind, Versions, BLOCK_BYTES, FIRST_ALGORITHM, FLAG_UNSUMMED,
    FRAGMENT_HEAD_LEN, RAILS_MAX, TAG_LEN,
};

/// Longest interval between probes of a path that does not answer; shorter if the peer timeout
/// would otherwise allow too few probes (docs/design/peer-failure.md).
const ASKS_EVERY_MAX_NS: u64 = 100_000_000;
const ASKS_PER_TIMEOUT: u64 = 50;

/// Longest interval of probes to a peer with operations outstanding: if its process is gone, its
/// host answers the probe with a refusal.
const ALIVE_EVERY_MAX_NS: u64 = 1_000_000_000;
/// A peer unheard for this long counts as silent itself, however long the peer timeout is: hosts
/// reschedule a process much sooner.
const PEER_SILENT_MAX_NS: u64 = 500_000_000;
/// Longest hold-down of a path that returned and failed again, however long the peer timeout.
const HOLD_DOWN_MAX_NS: u64 = 1_000_000_000;
/// Each extension of the peer timeout is this fraction of it, but at most [`MORE_TIME_MAX_NS`].
pub(crate) const TIMEOUT_EXTENSION: u8 = 8;
/// Longest extension of the peer timeout for a peer that got few probes: long enough for eight
/// probes on each path, too short to cover an outage.
const MORE_TIME_MAX_NS: u64 = 625_000_000;

/// Linux's neighbour resolution gives up after three requests, one per second.
const NEIGHBOUR_RESOLUTION_NS: u64 = 3_000_000_000;

/// Credit in bytes that each message costs in addition to its payload, for its entry in the
/// receiver's tables.
pub const MESSAGE_OVERHEAD: u64 = 128;

/// Credit that each endpoint grants each peer before HELLO grants more.
pub const FIRST_CREDIT: u64 = 16 * 1024;

/// Most paths to a peer, whichever side chose them (sixteen rails on each side). Bounds the state
/// that a peer can cause here.
pub const PATHS_MAX: usize = 256;

/// Distribution of traffic over rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RailPolicy {
    /// Large messages are spread over all rails.
    #[default]
    Stripe,
    /// The first usable rail carries all traffic, the others are standby rails.
    Standby,
    /// Rails of these kinds carry all traffic to the peers that they reach; the others are standby
    /// rails.
    Prefer(&'static [RailKind]),
}

impl RailPolicy {
    /// The tier of a rail. Rails of the lowest tier with a working rail carry all traffic to a
    /// peer.
    pub(crate) fn tier(self, rail: &RailSpec) -> u8 {
        match self {
            RailPolicy::Prefer(kinds) if kinds.contains(&rail.addr.kind) => 0,
            // Rails within a host use no network that others need.
            _ if rail.addr.kind.is_near() => 1,
            _ if !rail.standby => 2,
            _ => 3,
        }
    }
}

/// Delivery properties of a rail. All rails of one kind have the same properties, so both ends of a
/// path agree on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Packets of a path arrive in sending order.
    pub ordered: bool,
    /// Packets are lost only when their connection breaks: the rail retransmits and does congestion
    /// control itself.
    pub lossless: bool,
    /// Every path takes packets of the rail's largest size.
    pub fixed_mtu: bool,
}

impl Delivery {
    /// Datagrams: they may be lost, reordered, or too long for the path.
    pub const DATAGRAMS: Delivery = Delivery {
        ordered: false,
        lossless: false,
        fixed_mtu: false,
    };
    /// A connection that keeps order and loses nothing until it breaks (TCP, shared memory, RC).
    pub const STREAM: Delivery = Delivery {
        ordered: true,
        lossless: true,
        fixed_mtu: true,
    };
}

/// A local rail as the node sees it.
#[derive(Clone, Copy, Debug)]
pub struct RailSpec {
    /// Address for peers.
    pub addr: RailAddr,
    /// Largest datagram in bytes.
    pub datagram_max: usize,
    /// Payload bytes that all senders together may have in flight towards the rail's kernel buffer.
    pub receive_budget: u64,
    /// Links are connections: they are opened on request, and can break.
    pub connected: bool,
    /// Delivery properties.
    pub delivery: Delivery,
    /// A write notification never arrives on this rail before its write. (The rail's address says
    /// whether the rail writes at all.)
    pub ordered_writes: bool,
    /// Most datagrams of a direct write; 0: the rail writes in another way, and writes may have any
    /// length.
    pub direct_datagrams: usize,
    /// Standby rail of the rail with the previous index (see `RailAddr::behind`): not advertised,
    /// and without paths to peers that other rails reach.
    pub standby: bool,
    /// Index of the rail on the same port that carries long messages with less work: this rail
    /// carries them only to peers to which that one has no healthy path.
    pub bulk_rail: Option<u8>,
}

/// Paths to a peer: enough for all pairs of four rails on each side in one network. With only two
/// paths per rail, failures of a few rails could cut off a peer that other pairs still reach. Each
/// path costs half a kilobyte per peer, and probes of its own.
const PATHS: usize = 16;

/// The largest number of whole blocks that a frame's length field can hold, in bytes.
pub const FRAGMENT_MAX: u32 = u16::MAX as u32 / BLOCK_BYTES as u32 * BLOCK_BYTES as u32;

/// Segment of 256 KiB in whole blocks: 21 us on a wire of 100 Gbit/s, and no longer to sum.
const SEGMENT_MIN: u64 = (256u64 << 10).next_multiple_of(BLOCK_BYTES);

/// All settings of a node. The defaults are the design's measured choices.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Software reliability: acks, retransmission, failover. Off = native.
    pub reliable: bool,
    /// Payload algorithm number requested from peers.
    pub algorithm: u8,
    /// Payload algorithm number until the peer's HELLO has come.
    pub first_algorithm: u8,
    /// All algorithm numbers known here (below 32), most trusted first: of two requests, the more
    /// trusted is agreed.
    pub algorithms: &'static [u8],
    /// Algorithms whose sums depend on the order of the summed parts. Direct writes use no others,
    /// because their datagrams may be joined in another order.
    pub seeing_order: &'static [u8],
    /// Longest message sent eagerly, in bytes.
    pub eager_max: u64,
    /// Eager bytes (with overhead) that a peer may have unread here; fewer if there are many peers,
    /// see [`Config::credit_window`].
    pub credit_bytes: u64,
    /// Bound on unexpected payload and headers of all peers together, in bytes.
    pub unexpected_bytes: u64,
    /// The death of a peer also fails one tagged receive from any source: a pending one, or else
    /// the next one posted.
    pub any_source_fails: bool,
    /// A peer that owes a reply and is silent for this long is dead. Evidence of its end counts at
    /// once.
    pub peer_timeout_ns: u64,
    /// A rail without room for this long goes down even if it is the only rail or native, unless
    /// the peer timeout is shorter.
    pub rail_timeout_ns: u64,
    /// Lower bound of the retransmission timer (150 us: docs/design/loss.md).
    pub pto_floor_ns: u64,
    /// Upper bound of the retransmission timer.
    pub pto_cap_ns: u64,
    /// Ack delay while the application polls (20 us: docs/design/acknowledgement.md).
    pub ack_delay_ns: u64,
    /// Packets after which an ack is sent immediately.
    pub ack_every: u32,
    /// Distribution of traffic over rails.
    pub policy: RailPolicy,
    /// Paths that this side chooses to a peer if more pairs of rails reach each other. Each rail
    /// gets two paths even if that exceeds this number; paths that the peer chooses are accepted in
    /// addition.
    pub paths: usize,
    /// Local rails without software reliability (bit n: rail n). Data sent on them counts as
    /// arrived; requests for data and grants are acknowledged as on any rail.
    pub native_rails: u32,
    /// Local rails over which the receiver reads long messages (bit n: rail n), if both ends are
    /// configured so and the rail's writes are ordered.
    pub read_rails: u32,
    /// Least length of read segments in bytes. Both ends must have the same.
    pub segment_min: u64,
    /// Payload algorithm numbers of single local rails; `None`: as agreed with the peer.
    pub rail_algorithm: [Option<u8>; RAILS_MAX],
    /// Lengths of the shortest and the longest message whose payload carries a sum, in bytes.
    pub summed: (u64, u64),
    /// Most payload bytes under one sum (S_max of paper 3), in whole blocks.
    pub fragment_max: u32,
    /// Shortest message in bytes that rails write into registered memory where they can.
    pub write_min: u64,
    /// Chunk sizes of messages that are written into registered memory; `None`: chunks as long as
    /// possible.
    pub staged: Option<Pipeline>,
    /// Damaged packets per million packets above which a path is isolated; 0: never.
    pub corrupt_limit_ppm: u32,
    /// Mark of the job's key ([`marline_wire::Address::key_mark`]); 0: packets have no tags.
    pub key_mark: u16,
    /// Versions of the protocol that the node speaks. With a newer one than the library's it
    /// pretends to speak the next: that has one more kind of frame and one more field of HELLO.
    pub versions: Versions,
    /// A deliberate mistake.
    #[cfg(feature = "mutation")]
    pub mutation: Option<Mutation>,
}

impl Config {
    /// The flag of a message of this length: [`FLAG_UNSUMMED`] if its payload carries no sum, else
    /// 0.
    pub(crate) fn sum_flag(&self, len: u64) -> u8 {
        let summed = self.summed.0 <= len && len <= self.summed.1;
        if summed {
            0
        } else {
            FLAG_UNSUMMED
        }
    }
}

impl Config {
    /// Bytes of the tag at the end of each packet.
    #[inline]
    pub(crate) fn tag_len(&self) -> usize {
        match self.key_mark {
            0 => 0,
            _ => TAG_LEN,
        }
    }

    /// Bytes of a packet with one fragment, beside its payload.
    #[inline]
    pub(crate) fn fragment_head_len(&self) -> usize {
        FRAGMENT_HEAD_LEN + self.tag_len()
    }

    /// The flag of a packet with a tag, or 0.
    #[inline]
    pub(crate) fn tag_flag(&self) -> u8 {
        match self.key_mark {
            0 => 0,
            _ => Header::FLAG_TAGGED,
        }
    }
}

impl Config {
    /// Most paths to a peer that are chosen between this many local and remote rails.
    pub(crate) fn paths_wanted(&self, locals: usize, remotes: usize) -> usize {
        self.paths.max(2 * locals.max(remotes)).min(PATHS_MAX)
    }

    /// Credit in bytes for one more peer if `promised` bytes are granted to others: the configured
    /// credit while all windows fit half of the bound on unexpected memory, a quarter of it while
    /// they fit the whole bound, then the minimum. (With 64 MiB and 1 MiB: 32 peers, then 128
    /// more.)
    pub(crate) fn credit_window(&self, promised: u64) -> u64 {
        let (full, bound) = (self.credit_bytes.max(FIRST_CREDIT), self.unexpected_bytes);
        let quarter = (full / 4).max(FIRST_CREDIT);
        let fits = |&(window, bound): &(u64, u64)| promised + window <= bound;
        let choices = [(full, bound / 2), (quarter, bound)];
        (choices.into_iter().find(fits)).map_or(FIRST_CREDIT, |(window, _)| window)
    }

    /// Bytes by which to raise the window of a peer that has half of it unread here, if `promised`
    /// bytes are granted to all: the window doubles, up to a quarter of the bound on unexpected
    /// memory, while all windows fit half of the bound. (With 64 MiB two peers get 16 MiB each.)
    pub(crate) fn credit_growth(&self, window: u64, promised: u64) -> u64 {
        let bound = self.unexpected_bytes;
        let fits = 2 * window <= bound / 4 && promised + window <= bound / 2;
        if fits {
            window
        } else {
            0
        }
    }
}

impl Config {
    /// True if a message of this length that fits one packet has a single checksum.
    #[inline]
    pub(crate) fn undivided(&self, total: u64) -> bool {
        total <= self.fragment_max as u64
    }
}

impl Config {
    /// Returns whether this mutation is active.
    #[cfg(feature = "mutation")]
    #[inline]
    pub fn errs(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns false: this build has no mutations.
    #[cfg(not(feature = "mutation"))]
    #[inline(always)]
    pub const fn errs(&self, _: Mutation) -> bool {
        false
    }
}

impl Config {
    /// Bytes charged for an unexpected message of this cost.
    pub(crate) fn charged(&self, cost: u64) -> u64 {
        match self.errs(Mutation::Uncharged) {
            true => MESSAGE_OVERHEAD,
            false => cost,
        }
    }

    /// Longest interval between probes on a path while no path is known to carry packets. Probes
    /// get lost, and the last probe before the peer timeout may be the first that can arrive.
    pub(crate) fn probe_interval_max_ns(&self) -> u64 {
        ASKS_EVERY_MAX_NS.min(self.peer_timeout_ns / ASKS_PER_TIMEOUT)
    }

    /// Interval of probes that check whether a peer lives.
    pub(crate) fn keepalive_interval_ns(&self) -> u64 {
        ALIVE_EVERY_MAX_NS.min(self.peer_timeout_ns / 5)
    }

    /// A peer unheard for this long is silent itself.
    pub(crate) fn peer_silent_ns(&self) -> u64 {
        PEER_SILENT_MAX_NS.min(self.peer_timeout_ns / 10)
    }

    /// Longest hold-down of a path that failed again.
    pub(crate) fn hold_down_max_ns(&self) -> u64 {
        HOLD_DOWN_MAX_NS.min(self.peer_timeout_ns / 5)
    }

    /// Length of one extension of the peer timeout.
    pub(crate) fn timeout_extension_ns(&self) -> u64 {
        MORE_TIME_MAX_NS.min(self.silence_ns() / u64::from(TIMEOUT_EXTENSION))
    }

    /// Time up after which a rail has certainly resolved its neighbours' addresses
    /// (docs/design/peer-failure.md).
    pub(crate) fn neighbour_resolution_ns(&self) -> u64 {
        NEIGHBOUR_RESOLUTION_NS.min(self.silence_ns())
    }

    /// Longest silence allowed to a peer that owes a reply.
    pub(crate) fn silence_ns(&self) -> u64 {
        self.peer_timeout_ns << self.errs(Mutation::LongPeerTimeout) as u32
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            reliable: true,
            algorithm: FIRST_ALGORITHM,
            first_algorithm: FIRST_ALGORITHM,
            algorithms: &[FIRST_ALGORITHM],
            seeing_order: &[FIRST_ALGORITHM],
            eager_max: 65_536,
            credit_bytes: 1 << 20,
            unexpected_bytes: 64 << 20,
            any_source_fails: false,
            peer_timeout_ns: 5_000_000_000,
            rail_timeout_ns: 5_000_000_000,
            pto_floor_ns: 150_000,
            pto_cap_ns: 10_000_000,
            ack_delay_ns: 20_000,
            ack_every: 64,
            policy: RailPolicy::Stripe,
            paths: PATHS,
            native_rails: 0,
            read_rails: 0,
            segment_min: SEGMENT_MIN,
            rail_algorithm: [None; RAILS_MAX],
            summed: (0, u64::MAX),
            fragment_max: FRAGMENT_MAX,
            write_min: 16_384,
            staged: None,
            corrupt_limit_ppm: 10_000,
            key_mark: 0,
            versions: Versions::OURS,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_windows_of_many_peers_fit_the_bound() {
        let config = Config::default();
        let (mut promised, mut given) = (0, alloc::vec::Vec::new());
        for _ in 0..200 {
            let window = config.credit_window(promised);
            promised += window;
            given.push(window);
        }
        let of = |window| given.iter().filter(|&&w| w == window).count();
        let counts = [of(1 << 20), of(256 << 10), of(FIRST_CREDIT)];
        assert_eq!(counts, [32, 128, 40], "full, a quarter, the least");
        assert!(given.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn a_window_grows_while_there_is_memory() {
        let config = Config::default();
        let grown = |(mut window, others): (u64, u64)| loop {
            match config.credit_growth(window, others + window) {
                0 => return window >> 20,
                more => window += more,
            }
        };
        let cases = [(0, 16), (15 << 20, 16), (20 << 20, 8), (31 << 20, 1)];
        for (others, mebibytes) in cases {
            assert_eq!(grown((1 << 20, others)), mebibytes, "beside {others}");
        }
    }
}
