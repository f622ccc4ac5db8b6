//! Values that go in and out of a [`crate::Node`].

use crate::base::evidence::Evidence;
pub use crate::base::memory::{Landing, Memory, Payload, PutEnd, WriteCheck, WrittenSum};
use crate::base::slab::Key;
use alloc::vec::Vec;
use marline_wire::{MsgHead, FLAG_UNSUMMED};

/// Health of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing came back on it yet: carries probes, and the first flight while no other can.
    Unproven,
    /// In use.
    Up,
    /// Repair timers expired: what can goes elsewhere.
    Suspect,
    /// Given up for now; probed with backoff.
    Down,
}

/// Why a path was given up or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReason {
    /// It was answered for the first time.
    Proven,
    /// It is answered again.
    Answered,
    /// It was silent while another path was answered.
    Unanswered,
    /// Its rail is down.
    RailDown,
    /// Its connection ended: the word of its owner for why.
    LinkDown(u32),
    /// Its rail has had no room for long.
    NoRoom,
    /// Too much of what is sent on it arrives damaged.
    Corrupt,
    /// No packets pass on it that are long enough for data.
    Size,
    /// No other is better any more.
    NoBetter,
    /// The peer's rail has another address.
    Moved,
}

/// One remote endpoint, as this node numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A send that the engine posts. `handle` names its memory in the engine.
#[derive(Clone, Copy, Debug)]
pub struct SendSpec {
    /// The engine's name for the operation.
    pub handle: u32,
    /// Destination.
    pub peer: PeerId,
    /// `Some(tag)` for a tagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Bytes.
    pub len: u64,
    /// Somebody waits for the delivery: its last packet asks for its ack at once.
    pub urgent_ack: bool,
}

/// Whom a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Anyone.
    Any,
    /// One peer.
    Peer(PeerId),
}

/// A receive that the engine posts, or a pattern to peek for.
#[derive(Clone, Copy, Debug)]
pub struct RecvSpec {
    /// The engine's name for the operation.
    pub handle: u32,
    /// Whom from.
    pub source: Source,
    /// `Some((tag, ignore))` for tagged messages.
    pub tag: Option<(u64, u64)>,
    /// Bytes of the buffer.
    pub capacity: u64,
    /// `Some(min free bytes)`: one buffer for many messages, released below that.
    pub multi_min: Option<u64>,
}

impl RecvSpec {
    /// Returns whether a death ends it, though it names nobody, where that is set. What has no tag,
    /// or is for many messages, belongs to an MPI's inner workings, or to a server.
    pub(crate) fn names_nobody(&self) -> bool {
        self.source == Source::Any && self.tag.is_some() && self.multi_min.is_none()
    }
}

/// A message that is set aside: an unexpected one that was claimed, or a remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim(pub(crate) Key);

/// Seed of a payload's sum: which endpoint, message and span it claims to be (design rule 7), so
/// that a payload slipped to another place does not verify.
#[inline]
pub fn sum_seed(src_id: u64, number: u32, reply: bool, offset: u64, len: usize) -> u64 {
    // splitmix64's finaliser constants: any odd mixing constants do, both sides must agree.
    let mut z = src_id ^ (number as u64) << 1 ^ reply as u64;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= offset.rotate_left(17) ^ (len as u64).rotate_left(48);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Algorithm number of a fragment by its frame's flags, in a packet that names `packet`.
#[inline]
pub(crate) fn sums_of(packet: u8, flags: u8) -> u8 {
    if flags & FLAG_UNSUMMED == 0 {
        packet
    } else {
        0
    }
}

/// One payload of a packet to be sent: bytes `offset .. offset + len` of `handle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Send operation in the engine.
    pub handle: u32,
    /// Offset in the message.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Where its sum goes in the packet.
    pub sum_at: u32,
    /// Where the payload goes in the packet.
    pub payload_at: u32,
    /// Seed of the sum.
    pub seed: u64,
    /// It carries a sum; else 0 in its place.
    pub summed: bool,
}

/// A packet whose head is written and whose payloads are to be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Local rail to send on.
    pub rail: usize,
    /// Where it goes, there.
    pub dest: Dest,
    /// Peer and index of its path: consecutive packets of one batch share both.
    pub batch: Batch,
    /// Bytes of the head; its CRC goes to bytes 0..4 when all sums are in place.
    pub head_len: usize,
    /// Bytes of the packet.
    pub len: usize,
    /// Payload algorithm number in the header.
    pub algorithm: u8,
    /// It tells of a write: see `Node::take_write`.
    pub written: bool,
}

/// Where a packet goes, on the rail that it leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// To one peer.
    Link {
        /// The rail's number of the link; `u32::MAX`: there is none.
        link: u32,
        /// Source-port flow: one that comes later than all before has another port than these.
        flow: u8,
    },
    /// To all other members of a group that the rail has joined, by its number there. Packets of
    /// nodes never go to one: [`crate::group`] says what does.
    Group(u32),
}

/// Continue a batch: the next packet must go the same way and be no longer than `segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Destination.
    pub peer: PeerId,
    /// Index among the peer's paths.
    pub path: usize,
    /// Length of the batch's packets in bytes.
    pub segment: usize,
    /// Bulk fragments (which batch well) or small stuff.
    pub bulk: bool,
}

/// Spans of one packet, reused between calls.
pub type Spans = Vec<Span>;

/// An event for the owner of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every byte of the send is at the receiver, or (error) never will be; the memory is free.
    SendDone {
        /// Operation.
        handle: u32,
        /// Delivered, else the peer is dead.
        ok: bool,
    },
    /// A message of the endpoint to itself, or a read of its own memory: copy the first `len` bytes
    /// of `send` to `offset` in the memory of `recv`. What ends the two follows.
    Copy {
        /// Send, or answer to the read.
        send: u32,
        /// Receive, or read.
        recv: u32,
        /// Offset in its memory.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A peer has a rail of a kind that this version does not know, and does not use. Told once for
    /// each kind.
    UnknownRailKind {
        /// Its number.
        kind: u8,
    },
    /// A receive got its whole message.
    RecvDone {
        /// Operation.
        handle: u32,
        /// Sender.
        peer: PeerId,
        /// Matching head.
        head: MsgHead,
        /// Offset in the buffer (multi-receive).
        offset: u64,
        /// Bytes in the buffer.
        len: u64,
        /// The message is in this inbound's bounce buffer: copy `len` bytes from there, free it.
        bounce: Option<u64>,
        /// The operation is finished (always, but for multi-receives with room left).
        last: bool,
    },
    /// A posted receive ended without a message: the peer it named is dead.
    RecvFailed {
        /// Operation.
        handle: u32,
    },
    /// An inbound message ended without a receive (discarded, or its sender died).
    BounceFree {
        /// Inbound whose bounce buffer (if any) is to be freed.
        inbound: u64,
    },
    /// A remote read was served into the operation's memory, or refused.
    ReadDone {
        /// Operation.
        handle: u32,
        /// Data is there; else bad remote memory.
        ok: bool,
    },
    /// A remote read ended because its peer is gone.
    ReadLost {
        /// Operation.
        handle: u32,
    },
    /// A message could be written: grant `len` bytes from `offset` of the memory of receive (or
    /// read) `handle` on the local rails in the mask `rails`, if it is in one piece
    /// (`Node::registered_on`). Deregistered by `Deregister`, which follows.
    RegistrationWanted {
        /// The node's name for the inbound message.
        inbound: u64,
        /// Operation.
        handle: u32,
        /// Offset in its memory.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bit n for rail n.
        rails: u32,
    },
    /// A message of `total` bytes was offered, for `offset` of the memory of receive `handle`: read
    /// `len` bytes at `at` under the peer's key by a link of a local rail to their place, and say
    /// when that is over (`Node::pull_over`). `Deregister` follows: then it is given up, if it is
    /// still under way.
    PullWanted {
        /// The node's name for the inbound message.
        inbound: u64,
        /// Operation.
        handle: u32,
        /// Where the message begins in its memory.
        offset: u64,
        /// Bytes of the message.
        total: u64,
        /// Offset in the message.
        at: u64,
        /// Bytes.
        len: u64,
        /// Local rail.
        rail: u8,
        /// Its number of the link.
        link: u32,
        /// The peer's key.
        key: u64,
        /// Seed and algorithm number of the sum that the node will want of it.
        sum: (u64, u8),
    },
    /// A segment of a message was read, and is right.
    Pulled {
        /// Sender.
        peer: PeerId,
        /// The message's number.
        number: u32,
        /// Offset in the message.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// The message ends: end its grants first, if there are any left.
    Deregister {
        /// The node's name for the inbound message.
        inbound: u64,
    },
    /// A peer asks to read local memory: answer with `serve_read` or `refuse_read`.
    ReadAsked {
        /// Who.
        peer: PeerId,
        /// Its number for the read.
        number: u32,
        /// Region key.
        key: u64,
        /// Offset in the region.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Bytes granted at once.
        upto: u64,
        /// It is a part of an operation that is not counted with it.
        part: bool,
    },
    /// Packets of the size in use pass no more on a path, though smaller ones do, and nobody told;
    /// or its connection was silent, and the one in its place has other segments.
    PathShrank {
        /// Who.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
        /// Bytes of the longest datagrams before.
        from: usize,
        /// Bytes of the longest ones that pass; 0: none that could hold data.
        to: usize,
        /// [`PathReason::Size`], or of a silent connection [`PathReason::Unanswered`].
        why: PathReason,
    },
    /// A path is silent, and no other carries: another source port or connection is tried.
    PathRerouted {
        /// Whose path.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
    },
    /// The peer is dead; its operations were ended.
    PeerDead {
        /// Who.
        peer: PeerId,
        /// Milliseconds since it was last heard; if it is `heard`, since it acknowledged something.
        silent_ms: u64,
        /// Its host refused what was sent to it, and what that proves.
        refused: Option<Evidence>,
        /// It was heard lately, but nothing of ours gets through to it.
        heard: bool,
        /// Something was lost on a rail without software reliability, and nobody can send it again.
        lost: bool,
    },
    /// A peer writes into local memory: answer with `accept_put` or `refuse_put`.
    PutAsked {
        /// Who.
        peer: PeerId,
        /// The node's name for it.
        claim: Claim,
        /// Region key.
        key: u64,
        /// Offset in the region.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// All of a remote write is there but its end, which came before the rest.
    PutEnd(PutEnd),
    /// A remote write of ours names no memory that may be written, or no longer: the operation is
    /// over, and its memory is free. Some of it may have been written.
    PutRefused {
        /// Operation.
        handle: u32,
    },
    /// A call of a peer's owner, or its answer. The bytes are in the bounce buffer, which is the
    /// owner's now.
    Called {
        /// Who.
        peer: PeerId,
        /// Its two words (tag and data) and its length.
        head: MsgHead,
        /// The inbound whose bounce buffer holds it.
        bounce: u64,
    },
    /// Nothing more will come from a peer: it is dead, or has closed. All operations that the node
    /// knows of have ended.
    PeerOver {
        /// Who.
        peer: PeerId,
    },
    /// A path was given up or taken into use.
    PathChanged {
        /// Whose path.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
        /// New state.
        state: PathState,
        /// Why.
        why: PathReason,
        /// Packets that were moved to other paths.
        moved: u32,
    },
    /// It fell under suspicion that what is sent on a path does not arrive, or is over that.
    PathDoubted {
        /// Whose path.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
        /// Under suspicion.
        suspect: bool,
        /// Where it is over: how long nothing was delivered to the peer, in nanoseconds; 0: others
        /// delivered.
        gap_ns: u64,
    },
    /// Something was delivered for the first time since a path or a rail failed on which something
    /// waited.
    Resumed {
        /// To whom.
        peer: PeerId,
        /// On which path: local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
        /// How long nothing was delivered to it, in nanoseconds.
        gap_ns: u64,
    },
    /// Too many packets of a path arrive damaged: here, or (`by_peer`) at the peer.
    PathCorrupts {
        /// Whose path.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// Its rail.
        remote_rail: u8,
        /// Damaged packets among `of`; 0 where the peer counted.
        damaged: u32,
        /// Packets looked at.
        of: u64,
        /// The peer said so of what we send; else we found it in what it sends.
        by_peer: bool,
        /// The path was left; else it was the last usable one, or all are as bad.
        left: bool,
    },
    /// A peer that is dead or has closed, and with which nothing is left to do: to be forgotten
    /// (`Node::forget`), once its counters are kept.
    PeerLeft {
        /// Who.
        peer: PeerId,
    },
    /// A peer was to be spoken to, and no rail reaches any of its rails: it is dead.
    PeerUnreachable {
        /// Who.
        peer: PeerId,
    },
    /// A peer was refused at first contact, as its settings differ from ours: it is dead. Software
    /// reliability is on with one of both alone.
    PeerMismatch {
        /// Who.
        peer: PeerId,
        /// Software reliability is on here, and off there; else the other way round.
        reliable: bool,
    },
    /// The payload algorithm for a peer is agreed, and is not what both sides asked for.
    AlgorithmAgreed {
        /// Who.
        peer: PeerId,
        /// The peer's wish; it may be unknown here.
        wish: u8,
        /// The algorithm used.
        agreed: u8,
    },
}

/// Why a packet was dropped; each is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Destination token is not ours.
    Token,
    /// The source speaks from another life than the one we know.
    Epoch,
    /// Unknown source that did not say HELLO.
    Stranger,
    /// The source is dead or closed.
    Gone,
    /// Same packet again.
    Duplicate,
    /// A field contradicts what we know.
    Nonsense,
    /// A payload sum was wrong.
    CorruptPayload,
    /// No memory within the bounds, or no longer any; the sender will try again.
    NoMemory,
    /// It tells of a write that did not land: as good as lost.
    Unwritten,
    /// Its payload algorithm is unknown here: nothing in it could be checked.
    Algorithm,
}
