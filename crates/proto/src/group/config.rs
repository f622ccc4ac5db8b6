//! Settings of a group: members, memory limits and scheme.

use super::mutation::GroupMutation;
use alloc::sync::Arc;
use marline_wire::PARITY_MAX;

/// Settings of one algorithm that cover the published designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Chunks that a root may have in flight.
    pub window: u32,
    /// Members besides the root that collect acknowledgements.
    pub co_roots: u16,
    /// Broadcasts per acknowledgement; `u32::MAX`: only on request, or after a quarter of the
    /// window.
    pub ack_every: u32,
    /// Receivers send NACKs; otherwise collectors detect losses by timeout.
    pub nacks: bool,
    /// No multicast: the root sends each chunk to each member separately.
    pub alone: bool,
    /// The root also sends each chunk to each co-root by unicast.
    pub direct: bool,
    /// Acknowledgements are written into the collector's memory on rails that can write.
    pub marks: bool,
    /// Chunks per parity, at most [`PARITY_MAX`]; 0: no parities.
    pub parity: u8,
    /// A chunk missing at this many members or more is multicast again; otherwise it is sent to
    /// each.
    pub repair_all_from: u8,
}

/// Chunks of the default window: at 64,000 bytes each, more than a switch queues.
const WINDOW: u32 = 64;
/// Members per part in large groups: the most members that one collector hears.
const PART: usize = 64;
/// Largest group with one collector.
const ONE_COLLECTOR: usize = 128;

impl Scheme {
    /// The root sends to each member separately, and waits for all acknowledgements before the next
    /// chunk: a broadcast without multicast, for comparison.
    pub const ORIGINAL: Scheme = Scheme {
        alone: true,
        ..Scheme::BASIC
    };
    /// The root waits for all acknowledgements before the next chunk.
    pub const BASIC: Scheme = Scheme {
        window: 1,
        co_roots: 0,
        ack_every: 1,
        nacks: false,
        alone: false,
        direct: false,
        marks: false,
        parity: 0,
        repair_all_from: 3,
    };
    /// A window of chunks; all members acknowledge each broadcast to the root.
    pub const WINDOW: Scheme = Scheme {
        window: WINDOW,
        ..Scheme::BASIC
    };
    /// `WINDOW` with one co-root, so that two members collect acknowledgements.
    pub const CO_ROOT: Scheme = Scheme {
        co_roots: 1,
        direct: true,
        ..Scheme::WINDOW
    };
    /// `WINDOW` with one acknowledgement for ten broadcasts.
    pub const AGGREGATE: Scheme = Scheme {
        ack_every: 10,
        ..Scheme::WINDOW
    };
    /// Receivers send NACKs, and acknowledge on request.
    pub const NACK: Scheme = Scheme {
        ack_every: u32::MAX,
        nacks: true,
        ..Scheme::WINDOW
    };

    /// Names of schemes, for a setting; see [`Scheme::parse`].
    pub const NAMES: &'static str =
        "original, basic, window, co-root2, aggregate10, nack, with any number, and nack+parity8";

    /// The default for a group of this size: NACKs, and in large groups a collector per part.
    pub fn usual(members: usize) -> Scheme {
        let parts = match members {
            0..=ONE_COLLECTOR => 1,
            _ => members.div_ceil(PART),
        };
        Scheme {
            co_roots: (parts - 1).min(u16::MAX as usize) as u16,
            ..Scheme::NACK
        }
    }

    /// Parses a scheme's name: `original`, `basic`, `window`, `co-rootN` (N collectors including
    /// the root), `aggregateM` (an acknowledgement for M broadcasts), `nack`, and `nack+parityK` (a
    /// parity for K chunks). `None`: unknown name.
    pub fn parse(name: &str) -> Option<Scheme> {
        let number = |prefix: &str, least: u16, most: u16| {
            let number: u16 = name.strip_prefix(prefix)?.parse().ok()?;
            (least..=most).contains(&number).then_some(number)
        };
        let plain = match name {
            "original" => Some(Scheme::ORIGINAL),
            "basic" => Some(Scheme::BASIC),
            "window" => Some(Scheme::WINDOW),
            "nack" => Some(Scheme::NACK),
            _ => None,
        };
        let co_root = || {
            number("co-root", 1, u16::MAX).map(|collectors| Scheme {
                co_roots: collectors - 1,
                ..Scheme::CO_ROOT
            })
        };
        let aggregate = || {
            number("aggregate", 1, u16::MAX).map(|broadcasts| Scheme {
                ack_every: broadcasts as u32,
                ..Scheme::AGGREGATE
            })
        };
        let parity = || {
            number("nack+parity", 2, PARITY_MAX as u16).map(|chunks| Scheme {
                parity: chunks as u8,
                ..Scheme::NACK
            })
        };
        plain.or_else(co_root).or_else(aggregate).or_else(parity)
    }
}

/// Identity of a group, which distinguishes its members' packets from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random id of the group.
    pub id: u64,
    /// Random token of the group.
    pub token: u32,
    /// Endpoint id and epoch of each member, indexed by its number.
    pub members: Arc<[(u64, u32)]>,
}

/// Settings of one member.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// Number of this member, from 0.
    pub me: u16,
    /// Bytes of a chunk, equal on all members; the last chunk of a broadcast may be shorter.
    pub chunk: u32,
    /// Longest own broadcast in bytes that is copied while it is sent and so ends at once. The
    /// memory of a longer broadcast is in use until all members have acknowledged it.
    pub copy_max: u64,
    /// Most bytes of broadcasts that arrive before they are posted.
    pub early_max: u64,
    /// Most bytes kept of other roots' chunks, for members whose collector this one is.
    pub keep_max: u64,
    /// Rails that carry multicast, from 1 to 8.
    pub networks: u8,
    /// Chunks sent on one rail before the next rail's turn; a rail that sends many packets per
    /// system call needs that many.
    pub chunks_per_turn: u32,
    /// Approximate round-trip time of a small packet: initial value of the measurement.
    pub round_trip_ns: u64,
    /// Time of a chunk on the wire, which is the spacing of chunks. 0: unknown, and chunks are not
    /// spaced until some are lost.
    pub chunk_ns: u64,
    /// The scheme.
    pub scheme: Scheme,
    /// Seed of random delays.
    pub seed: u64,
    /// A deliberate mistake.
    #[cfg(feature = "mutation")]
    pub mutation: Option<GroupMutation>,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            me: 0,
            chunk: 1_344,
            // The limit of eager messages.
            copy_max: 65_536,
            early_max: 4 << 20,
            keep_max: 4 << 20,
            networks: 1,
            chunks_per_turn: 1,
            round_trip_ns: 50_000,
            chunk_ns: 0,
            scheme: Scheme::NACK,
            seed: 0,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }
}

impl GroupConfig {
    /// Returns whether this mutation is active.
    #[cfg(feature = "mutation")]
    #[inline]
    pub(super) fn errs(&self, mutation: GroupMutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns false: this build has no mutations.
    #[cfg(not(feature = "mutation"))]
    #[inline(always)]
    pub(super) const fn errs(&self, _: GroupMutation) -> bool {
        false
    }
}
