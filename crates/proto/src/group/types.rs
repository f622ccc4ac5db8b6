//! The values that go in and out of a group: packets, places, events.

use alloc::vec::Vec;
use marline_wire::GroupHead;
pub use marline_wire::{Chunk, GroupWord as Word};

/// A packet that was admitted: who sent it, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The member that sent it.
    pub from: u16,
    /// It was multicast, on this rail; none: it was sent to this member alone.
    pub lane: Option<u8>,
}

/// Whom a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The group, by multicast on one of its rails.
    All {
        /// Which of the group's rails.
        lane: u8,
    },
    /// One member, on whatever rail reaches it.
    Member(u16),
}

/// The load of a packet beside words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A chunk of an own broadcast, from the memory of operation `handle`.
    Own {
        /// The operation.
        handle: u32,
        /// Which chunk.
        chunk: Chunk,
        /// A copy of it is to be kept until [`GroupEvent::Forget`]: the operation ends before the
        /// chunk is acknowledged.
        keep: bool,
    },
    /// A chunk that is kept as a copy.
    Kept(Chunk),
    /// The exclusive or of the chunks that `chunk` tells, from the memory of operation `handle`.
    Parity {
        /// The operation.
        handle: u32,
        /// Which chunks.
        chunk: Chunk,
    },
    /// An acknowledgement, to be written where the receiver looks for those of this member and
    /// this root (see [`super::Group::handle_mark`]). It replaces what stood there.
    Mark {
        /// Whose chunks.
        root: u16,
        /// The value to write.
        value: u64,
    },
}

impl Content {
    /// Bytes of payload.
    pub(super) fn len(&self) -> u32 {
        match self {
            Content::Own { chunk, .. } | Content::Kept(chunk) => chunk.len,
            Content::Parity { chunk, .. } => chunk.len,
            Content::Mark { .. } => 0,
        }
    }
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whom it is for.
    pub to: To,
    /// Its words.
    pub words: Vec<Word>,
    /// Its load.
    pub content: Option<Content>,
}

/// Where the bytes of a chunk that just came belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memory of an operation, at the chunk's offset.
    Posted {
        /// The operation.
        handle: u32,
        /// A copy is to be kept until [`GroupEvent::Forget`]: this member is a co-root.
        keep: bool,
    },
    /// In a buffer of `total` bytes for a broadcast that was not posted yet.
    Early {
        /// As above.
        keep: bool,
    },
    /// It is here already, or nobody here wants it.
    Duplicate,
    /// There is no room for it now; it will be asked for again.
    NoRoom,
    /// It contradicts what is known of its broadcast, or lies outside the window.
    Nonsense,
}

impl Place {
    /// Says if the bytes are to be taken.
    pub fn takes(&self) -> bool {
        matches!(self, Place::Posted { .. } | Place::Early { .. })
    }
}

/// A chunk that can be made of a parity and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Where it belongs, and where its neighbours are.
    pub place: Place,
    /// The chunk: its bytes are those of the parity, exclusive or those of all other chunks.
    pub chunk: Chunk,
    /// Bytes from the first to the last of the chunks, in the same memory; they may be cut off at
    /// the broadcast's end.
    pub span: (u64, u64),
}

/// The payload of a chunk that came, and what it was sent with.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Number of the algorithm of its sum.
    pub algorithm: u8,
    /// Seed of its sum.
    pub seed: u64,
    /// Its sum.
    pub sum: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> Load<'a> {
    /// The load of a chunk, from a packet with this head.
    pub(super) fn of(head: &GroupHead, chunk: &Chunk, sum: u64, payload: &'a [u8]) -> Load<'a> {
        Load {
            algorithm: head.algorithm,
            seed: chunk.seed(head.group),
            sum,
            payload,
        }
    }
}

/// News for the group's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// An operation has ended: a receive has all its bytes, a root's memory is not read any more.
    Done {
        /// The operation.
        handle: u32,
        /// How it ended.
        end: End,
    },
    /// The early bytes of a broadcast belong to this operation from now on.
    Adopt {
        /// The broadcast.
        broadcast: u64,
        /// The operation.
        handle: u32,
    },
    /// The buffer of an early broadcast is not needed any more.
    Drop {
        /// The broadcast.
        broadcast: u64,
    },
    /// Copies that were kept of a root's chunks are not needed any more.
    Forget {
        /// Whose chunks.
        root: u16,
        /// Those below this number.
        next: u64,
    },
    /// The network does not carry this group's multicast (any more). Broadcasts below a number go
    /// on as they began, by unicast where they must; all members end those from it on with
    /// [`End::NotCarried`], and do them another way.
    NotCarried {
        /// The number.
        from: u64,
    },
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Well,
    /// This member, the root or one that has to acknowledge, is dead.
    Dead(u16),
    /// Root and receiver disagree about the broadcast's root or length.
    Mismatch,
    /// It was not done, here and at all other members: multicast is not carried.
    NotCarried,
}

/// Counters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Chunks multicast for the first time.
    pub chunks: u64,
    /// Chunks sent to one member, again or instead of to all.
    pub repairs: u64,
    /// Pieces of chunks sent to one member, as its path takes no whole ones.
    pub pieces: u64,
    /// Chunks sent again to all.
    pub repairs_to_all: u64,
    /// Parities multicast.
    pub parities: u64,
    /// Chunks made of a parity.
    pub rebuilt: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Acknowledgements that rode with a chunk, of those.
    pub acks_riding: u64,
    /// Requests for missing chunks sent.
    pub nacks: u64,
    /// TAILs sent.
    pub tails: u64,
    /// Chunks that came twice.
    pub duplicates: u64,
    /// Chunks that found no room before their broadcast was posted.
    pub no_room: u64,
    /// Chunks and words of members that made no sense.
    pub nonsense: u64,
    /// Packets whose token, group, epoch or sender is none of this group's.
    pub strangers: u64,
    /// Most bytes that waited in early buffers.
    pub early_bytes_max: u64,
    /// Acknowledgements and requests heard.
    pub heard: u64,
    /// How often chunks were put further apart, because many were lost.
    pub slowed: u64,
}

/// Counts of all that a group keeps, for checks that everything comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupHeld {
    /// Operations that have not ended.
    pub operations: u64,
    /// Bytes in early buffers.
    pub early_bytes: u64,
    /// Bytes kept of other roots' chunks.
    pub kept_bytes: u64,
    /// Bytes kept of own chunks.
    pub copied_bytes: u64,
    /// Chunks that not all have acknowledged.
    pub chunks: u64,
}
