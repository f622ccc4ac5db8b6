//! Values that pass between a [`crate::Node`] and its owner.

use crate::base::evidence::Evidence;
pub use crate::base::memory::{Landing, Memory, Payload, PutEnd, WriteCheck, WrittenSum};
use crate::base::slab::Key;
use alloc::vec::Vec;
use marline_wire::{MsgHead, Versions, FLAG_UNSUMMED};

/// Health of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// No packet was acknowledged on the path yet: it carries probes, and the first packets to the
    /// peer while no other path can.
    Unproven,
    /// In use.
    Up,
    /// Retransmission timers expired: traffic moves to other paths if there are any.
    Suspect,
    /// Out of use; probed with backoff.
    Down,
}

/// Why a path was taken out of use or back into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReason {
    /// First ack on the path.
    Proven,
    /// Acks arrive again.
    Answered,
    /// No acks on the path while another path had some.
    Unanswered,
    /// The local rail is down.
    RailDown,
    /// The connection ended; the number is the link owner's code for the reason.
    LinkDown(u32),
    /// The rail's send queue stayed full for too long.
    NoRoom,
    /// Too many packets sent on the path arrive damaged.
    Corrupt,
    /// The path drops packets long enough for data (PMTU black hole).
    Size,
    /// No other path is better.
    NoBetter,
    /// The peer's rail has a new address.
    Moved,
}

/// Number of a remote endpoint within this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A send posted by the engine. `handle` names its memory in the engine.
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
    /// The caller waits for the delivery: the last packet requests an immediate ack.
    pub urgent_ack: bool,
}

/// The senders that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Any sender.
    Any,
    /// This peer only.
    Peer(PeerId),
}

/// A receive posted by the engine, or a pattern to peek for.
#[derive(Clone, Copy, Debug)]
pub struct RecvSpec {
    /// The engine's name for the operation.
    pub handle: u32,
    /// Accepted senders.
    pub source: Source,
    /// `Some((tag, ignore))` for tagged messages.
    pub tag: Option<(u64, u64)>,
    /// Bytes of the buffer.
    pub capacity: u64,
    /// `Some(min free bytes)`: one buffer for many messages, released when fewer bytes are free.
    pub multi_min: Option<u64>,
}

impl RecvSpec {
    /// Returns whether the death of any peer may end this receive: a single tagged receive from any
    /// source (`any_source_fails`). Untagged receives and multi-receives are excluded: they belong
    /// to an MPI's internals or to a server.
    pub(crate) fn is_from_any_source(&self) -> bool {
        self.source == Source::Any && self.tag.is_some() && self.multi_min.is_none()
    }
}

/// A message that is set aside: a claimed unexpected message, or a remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim(pub(crate) Key);

/// Seed of a payload's sum: source endpoint, message and span, so that a payload that ends up
/// at another place does not verify (docs/design/wire.md).
#[inline]
pub fn sum_seed(src_id: u64, number: u32, reply: bool, offset: u64, len: usize) -> u64 {
    // Constants of splitmix64's finaliser. Any odd mixing constants work if both sides agree.
    let mut z = src_id ^ (number as u64) << 1 ^ reply as u64;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= offset.rotate_left(17) ^ (len as u64).rotate_left(48);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Algorithm number of a fragment, from its frame's flags and the packet's algorithm number.
#[inline]
pub(crate) fn sums_of(packet: u8, flags: u8) -> u8 {
    if flags & FLAG_UNSUMMED == 0 {
        packet
    } else {
        0
    }
}

/// A payload of a packet to be sent: bytes `offset .. offset + len` of `handle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Send operation in the engine.
    pub handle: u32,
    /// Offset in the message.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Offset of the sum in the packet.
    pub sum_at: u32,
    /// Offset of the payload in the packet.
    pub payload_at: u32,
    /// Seed of the sum.
    pub seed: u64,
    /// The payload carries a sum; otherwise the sum field is 0.
    pub summed: bool,
}

/// A packet whose head is written; its payloads are still to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Local rail to send on.
    pub rail: usize,
    /// Destination on the rail.
    pub dest: Dest,
    /// Peer and path; consecutive packets of one batch share both.
    pub batch: Batch,
    /// Bytes of the head; its CRC goes to bytes 0..4 once all sums are in place.
    pub head_len: usize,
    /// Bytes of the packet.
    pub len: usize,
    /// Payload algorithm number in the header.
    pub algorithm: u8,
    /// The packet carries a write notification: see `Node::take_write`.
    pub written: bool,
}

/// Destination of a packet on the rail that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// To one peer.
    Link {
        /// The rail's number of the link; `u32::MAX`: no link.
        link: u32,
        /// ECMP entropy: index of a source port. A new maximum selects a port different from all
        /// earlier ones.
        flow: u8,
    },
    /// All other members of a group that the rail has joined, by the rail's number of the group.
    /// Used for packets of [`crate::group`], never for packets of nodes.
    Group(u32),
}

/// Continuation of a batch: the next packet must take the same path and be at most `segment` bytes
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Destination.
    pub peer: PeerId,
    /// Index among the peer's paths.
    pub path: usize,
    /// Length of the batch's packets in bytes.
    pub segment: usize,
    /// Bulk fragments (which batch well), as opposed to short frames.
    pub bulk: bool,
}

/// Spans of one packet, reused between calls.
pub type Spans = Vec<Span>;

/// An event for the owner of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every byte of the send is at the receiver, or (after an error) never will be; the memory is
    /// free.
    SendDone {
        /// Operation.
        handle: u32,
        /// Delivered; `false`: the peer is dead.
        ok: bool,
    },
    /// A loopback message, or a read of the endpoint's own memory: copy the first `len` bytes of
    /// `send` to `offset` in the memory of `recv`. Events that end both operations follow.
    Copy {
        /// Send, or reply to the read.
        send: u32,
        /// Receive, or read.
        recv: u32,
        /// Offset in the memory of `recv`.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A peer has a rail of a kind unknown to this version; the rail is not used. Reported once per
    /// kind.
    UnknownRailKind {
        /// Number of the kind.
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
        /// `Some`: the message is in the bounce buffer of this inbound message: copy `len` bytes
        /// from it, then free it.
        bounce: Option<u64>,
        /// The operation is finished (always, except for multi-receives with room left).
        last: bool,
    },
    /// A posted receive ended without a message: the peer that it names is dead.
    RecvFailed {
        /// Operation.
        handle: u32,
    },
    /// A multi-receive is finished: the last message in flight into it will not come.
    RecvReleased {
        /// Operation.
        handle: u32,
    },
    /// An inbound message ended without a receive (discarded, or its sender died).
    BounceFree {
        /// Inbound message whose bounce buffer, if it has one, must be freed.
        inbound: u64,
    },
    /// A remote read ended: its data is in the operation's memory, or it was refused.
    ReadDone {
        /// Operation.
        handle: u32,
        /// The data is there; `false`: invalid remote memory.
        ok: bool,
    },
    /// A remote read ended because its peer is gone.
    ReadLost {
        /// Operation.
        handle: u32,
    },
    /// A message may be written into memory: register `len` bytes from `offset` of the memory of
    /// receive (or read) `handle` on the local rails in the mask `rails`, if the memory is
    /// contiguous, and answer with `Node::registered_on`. `Deregister` follows at the end.
    RegistrationWanted {
        /// The node's name for the inbound message.
        inbound: u64,
        /// Operation.
        handle: u32,
        /// Offset in the memory of `handle`.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bit n for rail n.
        rails: u32,
    },
    /// The peer advertised an rkey for a message of `total` bytes, for `offset` of the memory of
    /// receive `handle`: read `len` bytes at `at` by RDMA over the given link, and report the end
    /// with `Node::pull_over`. `Deregister` follows; it cancels a read that is still running.
    PullWanted {
        /// The node's name for the inbound message.
        inbound: u64,
        /// Operation.
        handle: u32,
        /// Start of the message in the operation's memory.
        offset: u64,
        /// Bytes of the message.
        total: u64,
        /// Offset in the message.
        at: u64,
        /// Bytes.
        len: u64,
        /// Local rail.
        rail: u8,
        /// The rail's number of the link.
        link: u32,
        /// The peer's key.
        key: u64,
        /// Seed and algorithm number of the sum that the node verifies afterwards.
        sum: (u64, u8),
    },
    /// A segment of a message was read and its sum is correct.
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
    /// The message ends: deregister its memory first, if it is registered.
    Deregister {
        /// The node's name for the inbound message.
        inbound: u64,
    },
    /// A peer asks to read local memory: answer with `serve_read` or `refuse_read`.
    ReadAsked {
        /// The reading peer.
        peer: PeerId,
        /// The peer's number of the read.
        number: u32,
        /// Region key.
        key: u64,
        /// Offset in the region.
        addr: u64,
        /// Bytes.
        len: u64,
        /// Bytes granted at once.
        upto: u64,
        /// The read is a part of a larger operation and is not counted by itself.
        part: bool,
    },
    /// A path drops packets of the size in use but passes smaller ones, without an ICMP error (PMTU
    /// black hole); or a new connection with another segment size replaced a silent one.
    PathShrank {
        /// The peer.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
        /// Longest datagram in bytes before.
        from: usize,
        /// Longest datagram in bytes that passes; 0: none long enough for data.
        to: usize,
        /// [`PathReason::Size`], or [`PathReason::Unanswered`] for a silent connection.
        why: PathReason,
    },
    /// A path is silent and no other path carries packets: another source port or connection is
    /// tried.
    PathRerouted {
        /// The peer.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
    },
    /// The peer is dead; its operations have ended.
    PeerDead {
        /// The peer.
        peer: PeerId,
        /// Milliseconds since its last packet; if `heard`, since its last ack of new data.
        silent_ms: u64,
        /// The peer's host refused packets or connections: the evidence that this gives.
        refused: Option<Evidence>,
        /// Packets of the peer arrived recently, but no packet sent to it arrives.
        heard: bool,
        /// Data was lost on a rail without software reliability and cannot be retransmitted.
        lost: bool,
    },
    /// A peer asks to write into local memory: answer with `accept_put` or `refuse_put`.
    PutAsked {
        /// The writing peer.
        peer: PeerId,
        /// The node's name for the write.
        claim: Claim,
        /// Region key.
        key: u64,
        /// Offset in the region.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// The held end of a remote write may be stored, since all other bytes are stored.
    PutEnd(PutEnd),
    /// A local remote write was refused: its target memory is not writable, or no longer. The
    /// operation is over and its memory is free; some bytes may have been written.
    PutRefused {
        /// Operation.
        handle: u32,
    },
    /// An RPC from a peer's engine, or the reply to an RPC, arrived. Its bytes are in the bounce
    /// buffer, which now belongs to the owner.
    RpcArrived {
        /// The peer.
        peer: PeerId,
        /// The RPC's two words (tag and data) and its length.
        head: MsgHead,
        /// Inbound message whose bounce buffer holds the RPC.
        bounce: u64,
    },
    /// A peer is dead or closed and sends no more packets; all its operations have ended.
    PeerOver {
        /// The peer.
        peer: PeerId,
    },
    /// A path was taken out of use or into use.
    PathChanged {
        /// The peer.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
        /// New state.
        state: PathState,
        /// Why.
        why: PathReason,
        /// Packets that were requeued to other paths.
        moved: u32,
    },
    /// A path became suspect (packets seem not to arrive), or is no longer suspect.
    PathSuspect {
        /// The peer.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
        /// The path is suspect.
        suspect: bool,
        /// Length of the gap at the end of a suspicion: nanoseconds without any delivery to the
        /// peer; 0: other paths delivered.
        gap_ns: u64,
    },
    /// First delivery to a peer since the failure of a path or rail that had data waiting.
    Resumed {
        /// The peer.
        peer: PeerId,
        /// Local rail of the delivering path.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
        /// Nanoseconds without any delivery to the peer.
        gap_ns: u64,
    },
    /// Too many packets of a path arrive damaged: here, or (`by_peer`) at the peer.
    PathCorrupts {
        /// The peer.
        peer: PeerId,
        /// Local rail.
        rail: u8,
        /// The peer's rail.
        remote_rail: u8,
        /// Number of damaged packets among `of`. 0 if the peer reports the damage without a count.
        damaged: u32,
        /// Packets checked.
        of: u64,
        /// The peer reported damage of packets sent here; `false`: packets of the peer arrived
        /// damaged here.
        by_peer: bool,
        /// `true`: the path was isolated; `false`: it stays in use, as the last usable path or
        /// because all others are as bad.
        left: bool,
    },
    /// A peer whose address was not inserted has opened a connection. If the owner has its address
    /// meanwhile, it calls `Node::name`.
    PeerMet {
        /// The peer.
        peer: PeerId,
    },
    /// A dead or closed peer has no work left: save its counters, then call `Node::forget`.
    PeerLeft {
        /// The peer.
        peer: PeerId,
    },
    /// No local rail reaches any rail of the peer: it is dead.
    PeerUnreachable {
        /// The peer.
        peer: PeerId,
    },
    /// A peer was refused in the handshake because only one side has software reliability on. The
    /// peer counts as dead.
    PeerMismatch {
        /// The peer.
        peer: PeerId,
        /// Software reliability is on here and off there; `false`: the reverse.
        reliable: bool,
    },
    /// A peer was refused at first contact for its versions of the protocol. The peer counts as
    /// dead.
    PeerVersions {
        /// The peer.
        peer: PeerId,
        /// The versions spoken here.
        ours: Versions,
        /// The versions spoken there. If there is a common one, one side had an altered address of
        /// the other.
        theirs: Versions,
    },
    /// The payload algorithm agreed with a peer differs from the wish of one side.
    AlgorithmAgreed {
        /// The peer.
        peer: PeerId,
        /// The algorithm that the peer requested; may be unknown here.
        preference: u8,
        /// The algorithm used.
        agreed: u8,
    },
}

/// The reason for dropping a packet; each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The packet does not have this endpoint's token.
    Token,
    /// The source has another epoch than the one known here.
    Epoch,
    /// Unknown source and no HELLO.
    Stranger,
    /// The source's address was not inserted, and there is no room for more such sources.
    Unadmitted,
    /// The source is dead or closed.
    Gone,
    /// Packet number already received.
    Duplicate,
    /// A field contradicts the state of this node.
    Invalid,
    /// A payload sum was wrong.
    CorruptPayload,
    /// Not enough memory within the bounds, or the memory is no longer available; the sender
    /// retransmits.
    NoMemory,
    /// A write notification whose write did not land, or whose bytes changed while they were read:
    /// the packet counts as lost.
    Unwritten,
    /// The payload algorithm is unknown here: nothing can be verified.
    Algorithm,
    /// The packet is not of the version agreed with its source.
    Version,
}
