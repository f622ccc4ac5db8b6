//! Configuration of a node; times in nanoseconds.

use marline_wire::{RailAddr, FIRST_ALGORITHM};

/// How rails share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RailPolicy {
    /// Large messages are spread over all rails.
    #[default]
    Stripe,
    /// The first usable rail carries everything, the others stand by.
    Standby,
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
}

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
    /// Longest message sent eagerly, in bytes.
    pub eager_max: u64,
    /// Eager bytes (with overhead) that each peer may have unread here.
    pub credit_bytes: u64,
    /// Bound on unexpected payload and headers of all peers together, in bytes.
    pub unexpected_bytes: u64,
    /// Silence of a peer that owes us something after which it is dead.
    pub peer_timeout_ns: u64,
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
    /// A deliberate mistake.
    #[cfg(feature = "mutation")]
    pub mutation: Option<crate::Mutation>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            reliable: true,
            algorithm: FIRST_ALGORITHM,
            algorithms: &[FIRST_ALGORITHM],
            eager_max: 65_536,
            credit_bytes: 256 * 1024,
            unexpected_bytes: 64 << 20,
            peer_timeout_ns: 5_000_000_000,
            repair_floor_ns: 150_000,
            repair_cap_ns: 10_000_000,
            ack_delay_ns: 20_000,
            ack_every: 64,
            policy: RailPolicy::Stripe,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }
}
