//! Values that pass between a group and its owner: packets, places, events.

use alloc::vec::Vec;
use marline_wire::GroupHead;
pub use marline_wire::{Chunk, GroupFrame as Frame};

/// Source of an admitted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The member that sent the packet.
    pub from: u16,
    /// Rail of a multicast packet; `None`: sent by unicast to this member only.
    pub network: Option<u8>,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The group, by multicast on one of its rails.
    All {
        /// Index among the group's rails.
        network: u8,
    },
    /// A single member, by any rail that reaches it.
    Member(u16),
}

/// Payload of a packet beside its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A chunk of an own broadcast, from the memory of operation `handle`.
    Own {
        /// The operation.
        handle: u32,
        /// The chunk.
        chunk: Chunk,
        /// Keep a copy until [`GroupEvent::Forget`]: the operation ends before the chunk is
        /// acknowledged.
        keep: bool,
    },
    /// A chunk from its retained copy.
    Retained(Chunk),
    /// The exclusive or of the chunks that `chunk` names, from the memory of operation `handle`.
    Parity {
        /// The operation.
        handle: u32,
        /// The covered chunks.
        chunk: Chunk,
    },
    /// An acknowledgement, written where the receiver looks for those of this member and this root
    /// (see [`super::Group::handle_mark`]). It replaces the previous one.
    Mark {
        /// Root of the acknowledged chunks.
        root: u16,
        /// The value to write.
        value: u64,
    },
}

impl Content {
    /// Returns whether the payload is a piece of a chunk.
    pub(super) fn is_piece(&self) -> bool {
        match self {
            Content::Own { chunk, .. } | Content::Retained(chunk) => chunk.piece > 0,
            Content::Parity { .. } | Content::Mark { .. } => false,
        }
    }

    /// Bytes of payload.
    pub(super) fn len(&self) -> u32 {
        match self {
            Content::Own { chunk, .. } | Content::Retained(chunk) => chunk.len,
            Content::Parity { chunk, .. } => chunk.len,
            Content::Mark { .. } => 0,
        }
    }
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Destination.
    pub to: To,
    /// The packet's frames.
    pub frames: Vec<Frame>,
    /// The packet's payload.
    pub content: Option<Content>,
}

/// Destination of a received chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memory of an operation, at the chunk's offset.
    Posted {
        /// The operation.
        handle: u32,
        /// Keep a copy until [`GroupEvent::Forget`], since this member is a co-root.
        keep: bool,
    },
    /// A buffer of `total` bytes for a broadcast that is not posted yet.
    Early {
        /// See `Posted`.
        keep: bool,
    },
    /// The chunk was already received, or is not wanted here.
    Duplicate,
    /// There is no room at present; the chunk will be requested again.
    NoRoom,
    /// The chunk contradicts the state of its broadcast, or lies outside the window.
    Invalid,
}

impl Place {
    /// Returns whether the bytes are to be stored.
    pub fn takes(&self) -> bool {
        matches!(self, Place::Posted { .. } | Place::Early { .. })
    }
}

/// A chunk that can be rebuilt from a parity and the other chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// The memory that holds the other chunks and takes the rebuilt chunk.
    pub place: Place,
    /// The chunk to rebuild: the exclusive or of the parity and all other chunks.
    pub chunk: Chunk,
    /// Byte range of all covered chunks, in the same memory, cut off at the broadcast's end.
    pub span: (u64, u64),
}

/// Payload of a received chunk and the data to verify it.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Algorithm number of the sum.
    pub algorithm: u8,
    /// Seed of the sum.
    pub seed: u64,
    /// The sum in the packet.
    pub sum: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> Load<'a> {
    /// The payload of a chunk, from a packet with this head.
    pub(super) fn of(head: &GroupHead, chunk: &Chunk, sum: u64, payload: &'a [u8]) -> Load<'a> {
        Load {
            algorithm: head.algorithm,
            seed: chunk.seed(head.group),
            sum,
            payload,
        }
    }
}

/// An event for the group's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// An operation has ended: a receive has all its bytes, or a root's memory is not read any
    /// more.
    Done {
        /// The operation.
        handle: u32,
        /// Result.
        end: End,
    },
    /// The early bytes of a broadcast belong to this operation from here on.
    Adopt {
        /// The broadcast.
        broadcast: u64,
        /// The operation.
        handle: u32,
    },
    /// The buffer of an early broadcast can be freed.
    Drop {
        /// The broadcast.
        broadcast: u64,
    },
    /// Retained copies of a root's chunks can be freed.
    Forget {
        /// The root.
        root: u16,
        /// Chunks below this number.
        next: u64,
    },
    /// The network does not carry this group's multicast (any more). Broadcasts below `from`
    /// continue, by unicast where necessary. All members end the broadcasts from `from` on with
    /// [`End::NotCarried`], and repeat them another way.
    NotCarried {
        /// First broadcast that ends.
        from: u64,
    },
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success.
    Well,
    /// This member is dead: the root, or a member that acknowledges.
    Dead(u16),
    /// Root and receiver disagree about the broadcast's root or length.
    Mismatch,
    /// No member has done the broadcast, since multicast is not carried.
    NotCarried,
}

/// Counters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Chunks multicast for the first time.
    pub chunks: u64,
    /// Chunks sent to one member: retransmissions, or because multicast does not reach it.
    pub repairs: u64,
    /// Pieces of chunks sent to one member, because its path takes no whole chunks.
    pub pieces: u64,
    /// Chunks sent again to all.
    pub repairs_to_all: u64,
    /// Parities multicast.
    pub parities: u64,
    /// Chunks rebuilt from a parity.
    pub rebuilt: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Acknowledgements of `acks` that were piggybacked on a chunk.
    pub acks_piggybacked: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// TAILs sent.
    pub tails: u64,
    /// Duplicate chunks received.
    pub duplicates: u64,
    /// Chunks for which there was no room because they arrived before their broadcast was posted.
    pub no_room: u64,
    /// Chunks and frames of members that contradict this group's state.
    pub nonsense: u64,
    /// Packets whose token, group, epoch or sender does not belong to this group.
    pub strangers: u64,
    /// Most bytes held in early buffers.
    pub early_bytes_max: u64,
    /// Acknowledgements and NACKs received.
    pub heard: u64,
    /// Times that chunk spacing was increased because many were lost.
    pub slowed: u64,
}

/// Resources that a group holds, for leak checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupHeld {
    /// Operations that have not ended.
    pub operations: u64,
    /// Bytes in early buffers.
    pub early_bytes: u64,
    /// Retained bytes of other roots' chunks.
    pub kept_bytes: u64,
    /// Retained bytes of own chunks.
    pub copied_bytes: u64,
    /// Chunks not yet acknowledged by all members.
    pub chunks: u64,
}
