//! Configuration of a node; times in nanoseconds.

use crate::base::mutation::Mutation;
use crate::base::pipeline::Pipeline;
use marline_wire::{RailAddr, RailKind, FIRST_ALGORITHM, FLAG_UNSUMMED, GRANULE, RAILS_MAX};

/// Questions on a path that brings no answer come at least so often, and so many of them within the
/// time after which a silent peer is dead (docs/design/peer-failure.md).
const ASKS_EVERY_MAX_NS: u64 = 100_000_000;
const ASKS_PER_TIMEOUT: u64 = 50;

/// A peer that something here waits for is asked so often at least, however long it may be silent:
/// the refusals of its host are the answer where its process is gone.
const ALIVE_EVERY_MAX_NS: u64 = 1_000_000_000;
/// A peer that said nothing for so long is silent itself, however long it is waited for: a host
/// gives a processor back after far less.
const MUTE_MAX_NS: u64 = 500_000_000;
/// A path that came back and fell again is left alone for so long at most, however long a peer is
/// waited for.
const HOLD_MAX_NS: u64 = 1_000_000_000;
/// A peer that is waited for longer than the time after which a silent one is dead is so by this
/// part of it each time, where that is shorter than [`MORE_TIME_MAX_NS`].
pub(crate) const MORE_TIME: u8 = 8;
/// So long a peer is waited for once more at most, where it was hardly asked. The time is for eight
/// questions on each path, not for an outage.
const MORE_TIME_MAX_NS: u64 = 625_000_000;

/// So long Linux asks where a neighbour is before it gives up: three times, once a second.
const ASKS_NS: u64 = 3_000_000_000;

/// Bytes of credit that a message costs beside its payload: its entry in the receiver's tables.
pub const MESSAGE_OVERHEAD: u64 = 128;

/// Credit that every endpoint gives every other before HELLO says more.
pub const FIRST_CREDIT: u64 = 16 * 1024;

/// Paths to a peer at most, whoever has chosen them: all between sixteen rails on each side. A peer
/// cannot make us keep more.
pub const PATHS_MAX: usize = 256;

/// How rails share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RailPolicy {
    /// Large messages are spread over all rails.
    #[default]
    Stripe,
    /// The first usable rail carries everything, the others stand by.
    Standby,
    /// Rails of these kinds carry everything for the peers that they reach; the others stand by.
    Prefer(&'static [RailKind]),
}

impl RailPolicy {
    /// The tier of a rail: those of a lower tier carry everything for a peer, while one of them
    /// works.
    pub(crate) fn tier(self, rail: &RailSpec) -> u8 {
        match self {
            RailPolicy::Prefer(kinds) if kinds.contains(&rail.addr.kind) => 0,
            // What stays within a host takes no network that others need.
            _ if rail.addr.kind.is_near() => 1,
            _ if !rail.standby => 2,
            _ => 3,
        }
    }
}

/// A rail's promise of what it does with packets. Rails of one kind promise the same, so that it
/// holds for both ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Packets of a path arrive in the order in which they were sent.
    pub ordered: bool,
    /// Packets are lost only with their connection: while it is up the rail repeats what the
    /// network loses, and shares the network with others by itself.
    pub lossless: bool,
    /// Every path takes packets of the rail's largest size.
    pub fixed_mtu: bool,
}

impl Delivery {
    /// Datagrams: lost, overtaken and too long as it happens.
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
    /// Where peers reach it.
    pub addr: RailAddr,
    /// Largest datagram it takes, in bytes.
    pub datagram_max: usize,
    /// Payload bytes that all senders together may have in flight to its kernel buffer.
    pub receive_budget: u64,
    /// Its links are connections, which come up after they were asked for, and break.
    pub connected: bool,
    /// How it treats packets.
    pub delivery: Delivery,
    /// A packet that tells of a write never arrives on it without the write. (Whether it writes at
    /// all, its address says.)
    pub ordered_writes: bool,
    /// It writes by datagrams, so many at most; 0: by other means, of any length.
    pub direct_datagrams: usize,
    /// It stands behind the rail of the index before (see `RailAddr::behind`): it is named to
    /// nobody, and has no paths to peers whom other rails reach.
    pub standby: bool,
}

/// All paths that there are between four rails on each side in one network. With two paths a rail
/// no failure of single rails cuts off a peer that others could reach, and each path more costs
/// half a kilobyte a peer and probes of its own.
const PATHS: usize = 16;

/// The largest number of whole granules that a frame's length field holds, in bytes.
pub const FRAGMENT_MAX: u32 = u16::MAX as u32 / GRANULE as u32 * GRANULE as u32;

/// A segment of 256 KiB, in whole granules: it takes a wire of 100 Gbit/s 21 us, and a sum no
/// longer.
const SEGMENT_MIN: u64 = (256u64 << 10).next_multiple_of(GRANULE);

/// Everything a node can be told. Defaults are the design's measured choices.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Software reliability: acks, retransmission, failover. Off = native.
    pub reliable: bool,
    /// Payload algorithm number that peers are asked for.
    pub algorithm: u8,
    /// Every algorithm number known here (below 32), the most trusted first: of two wishes the one
    /// that comes first here is agreed on.
    pub algorithms: &'static [u8],
    /// Those of them whose sums change when parts of what they sum change places: bytes that leave
    /// as a direct write go under no others, for their datagrams may be joined in another order.
    pub seeing_order: &'static [u8],
    /// Longest message sent eagerly, in bytes.
    pub eager_max: u64,
    /// Eager bytes (with overhead) that a peer may have unread here; with many peers less, see
    /// [`Config::credit_window`].
    pub credit_bytes: u64,
    /// Bound on unexpected payload and headers of all peers together, in bytes.
    pub unexpected_bytes: u64,
    /// A death ends a tagged receive from anyone, too: those that wait then, else the next one.
    pub any_source_fails: bool,
    /// Silence of a peer that owes us something after which it is dead. Evidence of its end counts
    /// sooner.
    pub peer_timeout_ns: u64,
    /// An only rail, or a native one, that has no room for so long is given up, where the peer
    /// timeout is not shorter.
    pub rail_timeout_ns: u64,
    /// Lowest repair timer (150 us: design section 5).
    pub repair_floor_ns: u64,
    /// Highest repair timer.
    pub repair_cap_ns: u64,
    /// Ack delay while the application polls (20 us: design rule 1).
    pub ack_delay_ns: u64,
    /// Packets after which an ack leaves at once.
    pub ack_every: u32,
    /// How rails share the work.
    pub policy: RailPolicy,
    /// Paths to a peer that are chosen where more pairs of rails reach each other. Each rail gets
    /// two even if they are more than this, and the peer may choose others, which are taken as
    /// well.
    pub paths: usize,
    /// Local rails without software reliability (bit n: rail n). Data that left on one counts as
    /// arrived; what asks for data and grants it is acknowledged as on any rail.
    pub native_rails: u32,
    /// Local rails on which the receiver reads long messages, where both ends have it so and the
    /// rail writes in order (bit n: rail n).
    pub read_rails: u32,
    /// Least length of the segments in which they are read, in bytes. Both ends must have it so.
    pub segment_min: u64,
    /// Payload algorithm numbers of single local rails; `None`: as agreed with the peer.
    pub rail_algorithm: [Option<u8>; RAILS_MAX],
    /// Lengths of the shortest and the longest message whose payload carries a sum, in bytes.
    pub summed: (u64, u64),
    /// Most payload bytes under one sum (S_max of paper 3): whole granules.
    pub fragment_max: u32,
    /// Shortest message in bytes that is written where rails can.
    pub write_min: u64,
    /// The chunks in which a message is written into registered memory; `None`: the longest that
    /// there are.
    pub staged: Option<Pipeline>,
    /// Damaged packets of a path per million, above which it is left; 0: never.
    pub corrupt_limit_ppm: u32,
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
    /// Paths to a peer that are chosen at most, between so many local and remote rails.
    pub(crate) fn paths_wanted(&self, locals: usize, remotes: usize) -> usize {
        self.paths.max(2 * locals.max(remotes)).min(PATHS_MAX)
    }

    /// Bytes that one more peer may have unread here, after `promised` to others: all that is
    /// configured while everyone's fit half of the bound on unexpected memory, a quarter of it
    /// while they fit all of it, then the least. (64 MiB and 1 MiB: 32 peers and 128 more.)
    pub(crate) fn credit_window(&self, promised: u64) -> u64 {
        let (full, bound) = (self.credit_bytes.max(FIRST_CREDIT), self.unexpected_bytes);
        let quarter = (full / 4).max(FIRST_CREDIT);
        let fits = |&(window, bound): &(u64, u64)| promised + window <= bound;
        let choices = [(full, bound / 2), (quarter, bound)];
        (choices.into_iter().find(fits)).map_or(FIRST_CREDIT, |(window, _)| window)
    }

    /// Bytes by which the window of a peer grows that has left half of it unread here, after
    /// `promised` to all: it doubles, up to a quarter of the bound on unexpected memory, while
    /// everyone's fit half of the bound. (64 MiB: two peers have 16 MiB.)
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
    /// Returns whether this mistake is to be made.
    #[cfg(feature = "mutation")]
    #[inline]
    pub fn errs(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Never.
    #[cfg(not(feature = "mutation"))]
    #[inline(always)]
    pub const fn errs(&self, _: Mutation) -> bool {
        false
    }
}

impl Config {
    /// The bytes charged for an unexpected message that costs so much.
    pub(crate) fn charged(&self, cost: u64) -> u64 {
        match self.errs(Mutation::Uncharged) {
            true => MESSAGE_OVERHEAD,
            false => cost,
        }
    }

    /// The longest pause between two questions on a path, where no path is known to carry. They
    /// get lost, and the last one before the peer counts as dead may be the first that can arrive.
    pub(crate) fn asks_every_ns(&self) -> u64 {
        ASKS_EVERY_MAX_NS.min(self.peer_timeout_ns / ASKS_PER_TIMEOUT)
    }

    /// The pause between two questions to a peer whether it lives.
    pub(crate) fn alive_every_ns(&self) -> u64 {
        ALIVE_EVERY_MAX_NS.min(self.peer_timeout_ns / 5)
    }

    /// A peer that was not heard for so long is silent itself.
    pub(crate) fn mute_ns(&self) -> u64 {
        MUTE_MAX_NS.min(self.peer_timeout_ns / 10)
    }

    /// A path that fell again is left alone for so long at most.
    pub(crate) fn hold_max_ns(&self) -> u64 {
        HOLD_MAX_NS.min(self.peer_timeout_ns / 5)
    }

    /// A peer that is waited for once more is so for this long.
    pub(crate) fn more_time_ns(&self) -> u64 {
        MORE_TIME_MAX_NS.min(self.silence_ns() / u64::from(MORE_TIME))
    }

    /// A rail that was up for so long could ask where its neighbours are
    /// (docs/design/peer-failure.md).
    pub(crate) fn asks_ns(&self) -> u64 {
        ASKS_NS.min(self.silence_ns())
    }

    /// How long somebody who owes an answer may be silent.
    pub(crate) fn silence_ns(&self) -> u64 {
        self.peer_timeout_ns << self.errs(Mutation::Patient) as u32
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            reliable: true,
            algorithm: FIRST_ALGORITHM,
            algorithms: &[FIRST_ALGORITHM],
            seeing_order: &[FIRST_ALGORITHM],
            eager_max: 65_536,
            credit_bytes: 1 << 20,
            unexpected_bytes: 64 << 20,
            any_source_fails: false,
            peer_timeout_ns: 5_000_000_000,
            rail_timeout_ns: 5_000_000_000,
            repair_floor_ns: 150_000,
            repair_cap_ns: 10_000_000,
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
