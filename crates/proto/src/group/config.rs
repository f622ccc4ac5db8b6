//! Settings of a group: its members, its memory, and how it works.

use super::mutation::GroupMutation;
use alloc::sync::Arc;
use marline_wire::PARITY_MAX;

/// How a group works: the published designs are settings of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Chunks that a root may have under way.
    pub window: u32,
    /// Members besides the root that collect acknowledgements.
    pub co_roots: u16,
    /// Members acknowledge after so many broadcasts; `u32::MAX`: when asked, or when a quarter of
    /// the window is theirs to acknowledge.
    pub ack_every: u32,
    /// Receivers ask for what they miss; otherwise collectors find out by time.
    pub nacks: bool,
    /// Nothing is multicast: the root sends each chunk to each member.
    pub alone: bool,
    /// The root also sends each chunk to each co-root point to point.
    pub direct: bool,
    /// Acknowledgements are written into the collector's memory, on rails that write.
    pub marks: bool,
    /// Chunks for which one parity is sent, at most [`PARITY_MAX`]; 0: none is.
    pub parity: u8,
    /// A chunk that at least as many members miss is multicast again; one that fewer miss is sent
    /// to each.
    pub repair_all_from: u8,
}

/// Chunks of the usual window: at 64,000 bytes each more than a switch queues.
const WINDOW: u32 = 64;
/// Members of a part where co-roots are many: one collector hears from so many at most.
const PART: usize = 64;
/// Up to so many members one collector is enough.
const ONE_COLLECTOR: usize = 128;

impl Scheme {
    /// The root sends to each member by itself, and waits for all acknowledgements before the next
    /// chunk leaves: broadcast without multicast, to compare with.
    pub const ORIGINAL: Scheme = Scheme {
        alone: true,
        ..Scheme::BASIC
    };
    /// The root waits for all acknowledgements before the next chunk leaves.
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
    /// A window of chunks, each broadcast acknowledged by all to the root.
    pub const WINDOW: Scheme = Scheme {
        window: WINDOW,
        ..Scheme::BASIC
    };
    /// The same with one co-root: two members collect.
    pub const CO_ROOT: Scheme = Scheme {
        co_roots: 1,
        direct: true,
        ..Scheme::WINDOW
    };
    /// A window, and one acknowledgement for ten broadcasts.
    pub const AGGREGATE: Scheme = Scheme {
        ack_every: 10,
        ..Scheme::WINDOW
    };
    /// Receivers ask for what they miss, and acknowledge when asked.
    pub const NACK: Scheme = Scheme {
        ack_every: u32::MAX,
        nacks: true,
        ..Scheme::WINDOW
    };

    /// Names of schemes, for a setting; see [`Scheme::parse`].
    pub const NAMES: &'static str =
        "original, basic, window, co-root2, aggregate10, nack, with any number, and nack+parity8";

    /// The default for a group of so many members: receivers ask for what they miss, and large
    /// groups have collectors for parts of them.
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

    /// The scheme of a name: `original`, `basic`, `window`, `co-rootN` (N collectors, the root
    /// among them), `aggregateM` (an acknowledgement for M broadcasts), `nack`, and `nack+parityK`
    /// (a parity for K chunks). `None`: there is no such scheme.
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

/// A group's members, as their packets are told from those of strangers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random id of the group.
    pub id: u64,
    /// Random token of the group.
    pub token: u32,
    /// Endpoint id and epoch of each member, by its number.
    pub members: Arc<[(u64, u32)]>,
}

/// One member's part in a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// This member, from 0.
    pub me: u16,
    /// Bytes of a chunk; the last of a broadcast may be shorter. All members have the same.
    pub chunk: u32,
    /// Own broadcasts up to so many bytes are copied as they leave, and end then; the memory of
    /// longer ones is read until all have acknowledged.
    pub copy_max: u64,
    /// Bytes of broadcasts that arrived before they were posted, at most.
    pub early_max: u64,
    /// Bytes of other roots' chunks that are kept for members whose collector this one is.
    pub keep_max: u64,
    /// Rails that carry multicast, from 1 to 8.
    pub lanes: u8,
    /// Chunks that leave on one of them before the next has its turn: rails that send many packets
    /// by one call want as many.
    pub lane_run: u32,
    /// Time that a small packet takes to any member and its answer back, about: where measuring
    /// starts.
    pub round_trip_ns: u64,
    /// Time that a chunk takes on the wire: chunks leave so far apart. 0: not known; they leave at
    /// once, until some are lost.
    pub chunk_ns: u64,
    /// How it works.
    pub scheme: Scheme,
    /// Seed of the delays.
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
            // As for messages that are sent eagerly.
            copy_max: 65_536,
            early_max: 4 << 20,
            keep_max: 4 << 20,
            lanes: 1,
            lane_run: 1,
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
    /// True if this mistake is to be made.
    #[cfg(feature = "mutation")]
    #[inline]
    pub(super) fn errs(&self, mutation: GroupMutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Never.
    #[cfg(not(feature = "mutation"))]
    #[inline(always)]
    pub(super) const fn errs(&self, _: GroupMutation) -> bool {
        false
    }
}
