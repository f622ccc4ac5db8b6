//! Messages in flight: outgoing (`SendXfer`) and incoming (`Inbound`).

use crate::base::blocks::BlockSet;
use crate::base::slab::Key;
use crate::base::types::{DropReason, Landing, PeerId, SendSpec};
use crate::base::waits::WaitClock;
use crate::state::advertisement::{Mask, PeerAdvertisement, Segments};
use crate::state::matching::MatchedReceive;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{
    blocks, MsgHead, BLOCK_BYTES, FLAG_CQ_DATA, FLAG_DELIVERY, FLAG_DEREGISTER, FLAG_PUT,
    FLAG_READ_REPLY, FLAG_RPC, FLAG_TAGGED, FLAG_UNSUMMED,
};

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKind {
    /// Eager or rendezvous is not decided: the head has not left.
    Queued,
    /// The payload goes with the head.
    Eager,
    /// RTS, grant, data.
    Rendezvous,
    /// Answer to a peer's READ.
    Reply,
}

/// An outgoing message.
#[derive(Debug)]
pub struct SendXfer {
    pub handle: u32,
    pub peer: PeerId,
    pub kind: SendKind,
    pub head: MsgHead,
    pub urgent: bool,
    /// First byte that was never sent.
    pub next: u64,
    /// End of the bytes that may leave.
    pub upto: u64,
    /// Bytes that the receiver wants (all bytes, unless it truncates).
    pub wanted: u64,
    pub granted: bool,
    pub acked: BlockSet,
    pub in_bulk: bool,
    /// The payload, however short, waits until the receiver requests it.
    pub waits: bool,
    /// The message's wait, from its first chance to leave.
    pub(crate) wait: WaitClock,
    /// The local rail whose rkey was advertised, and how many segments were advertised.
    pub(crate) advertised: Option<(u8, u16)>,
    /// Keys for writes. (Boxed: few messages have any, and this struct is moved for each short
    /// message.)
    pub keys: Option<Box<PeerKeys>>,
}

impl SendXfer {
    /// Flags of the fragments after the head.
    pub(crate) fn fragment_flags(&self) -> u8 {
        let reply = self.kind == SendKind::Reply;
        self.head.flags & (FLAG_UNSUMMED | FLAG_DEREGISTER)
            | if reply { FLAG_READ_REPLY } else { 0 }
    }
}

/// Where an inbound message stands in matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundState {
    /// An earlier message has not been matched yet.
    Held,
    /// No receive matches.
    Unexpected,
    /// Matched with receive `handle`, from `base` of its buffer, at most `capacity` bytes.
    Bound {
        handle: u32,
        base: u64,
        capacity: u64,
    },
    /// Claimed by a peek, or a remote write whose place was requested.
    Claimed,
    /// A remote write that was refused. None of its packets counts as arrived until its writer
    /// knows of the refusal.
    Refused,
    /// To be received and dropped.
    Discard,
}

/// An incoming message.
#[derive(Debug)]
pub struct Inbound {
    pub peer: PeerId,
    pub number: u64,
    pub head: Option<MsgHead>,
    pub total: u64,
    pub state: InboundState,
    pub rendezvous: bool,
    /// Loopback: the local send (or read answer) that this message comes from.
    pub own: Option<u32>,
    /// Answer to the local READ with that number.
    pub reply: bool,
    /// Part of the message is in a bounce buffer; all of it must go there.
    pub bounced: bool,
    /// The end of a remote write is in a bounce buffer because it arrived before the rest.
    pub holds_end: bool,
    pub set: BlockSet,
    /// Rendezvous: bytes wanted, and bytes granted.
    pub wanted: u64,
    pub granted: u64,
    /// Rendezvous: granted bytes that were announced in a GRANT frame.
    pub announced: u64,
    pub in_grant_queue: bool,
    pub last_data_ns: u64,
    /// Granted bytes not yet received that count against the budget.
    pub counted: u64,
    /// Unexpected bytes charged to the node's limit.
    pub charged: u64,
    /// Credit returned to the sender when the message is done.
    pub credit: u64,
    /// Remote keys of the message's memory.
    pub keys: Keys,
    /// For a message of a stranger: the receive from any source that it matched.
    pub(crate) matched: Option<Box<MatchedReceive>>,
    /// The sender's memory, which may be read.
    pub(crate) advertisement: Option<Box<PeerAdvertisement>>,
}

pub(crate) fn new_send(handle: u32, peer: PeerId, head: MsgHead, kind: SendKind) -> SendXfer {
    SendXfer {
        handle,
        peer,
        kind,
        head,
        urgent: head.flags & FLAG_DELIVERY != 0,
        next: 0,
        upto: 0,
        wanted: head.total,
        granted: false,
        acked: BlockSet::default(),
        in_bulk: false,
        waits: false,
        wait: WaitClock::default(),
        advertised: None,
        keys: None,
    }
}

pub(crate) fn new_inbound(peer: PeerId, number: u64, total: u64, state: InboundState) -> Inbound {
    Inbound {
        peer,
        number,
        head: None,
        total,
        state,
        rendezvous: false,
        own: None,
        reply: false,
        bounced: false,
        holds_end: false,
        set: BlockSet::default(),
        wanted: total,
        granted: 0,
        announced: 0,
        in_grant_queue: false,
        last_data_ns: 0,
        counted: 0,
        charged: 0,
        credit: 0,
        keys: Keys::default(),
        matched: None,
        advertisement: None,
    }
}

impl Inbound {
    /// Bytes in `from..to` that were read from the sender's memory and not granted.
    pub(crate) fn read_of(&self, from: u64, to: u64) -> u64 {
        let inside = |advertisement: &PeerAdvertisement| {
            advertisement
                .segments
                .bytes_inside(&advertisement.here, from, to)
        };
        self.advertisement.as_deref().map_or(0, inside)
    }

    /// Flag for the number space of this message's frames: messages (0) or reads.
    pub(crate) fn kind_flag(&self) -> u8 {
        FLAG_READ_REPLY * self.reply as u8
    }

    /// True if all wanted bytes have arrived.
    pub(crate) fn complete(&self) -> bool {
        let wanted = matches!(
            self.state,
            InboundState::Bound { .. } | InboundState::Discard
        );
        if self.own.is_some() {
            wanted
        } else if self.rendezvous {
            wanted && (self.wanted == 0 || self.set.count() == blocks(self.wanted))
        } else {
            self.set.count() == blocks(self.total)
        }
    }
}

impl Inbound {
    /// Where bytes `offset .. offset + len` of the message go.
    pub(crate) fn landing(&self, key: Key, offset: u64, len: u64) -> Landing {
        match self.state {
            InboundState::Discard => Landing::Discard,
            InboundState::Bound {
                handle,
                base,
                capacity,
            } if !self.bounced => {
                let copy = len.min(capacity.saturating_sub(offset)) as usize;
                // Bytes beyond the buffer's end have no place.
                match copy {
                    0 => Landing::Discard,
                    _ => Landing::Posted {
                        handle,
                        offset: base + offset,
                        copy,
                    },
                }
            }
            _ => Landing::Bounce {
                inbound: key.name(),
                total: self.total,
                offset,
            },
        }
    }
}

/// Keys of an incoming message.
#[derive(Debug, Default)]
pub struct Keys {
    /// The owner was asked for keys.
    pub asked: bool,
    /// By local rail; empty after deregistration.
    pub by_rail: Vec<(u8, u64)>,
}

/// Announcements of the receiver of a message: keys, and segments that arrived.
#[derive(Debug, Default)]
pub struct PeerKeys {
    /// Keys by the receiver's rail.
    pub(crate) by_rail: Vec<(u8, u64)>,
    /// Segments that the receiver has read, and the bytes granted beside them.
    pub(crate) has: Option<Has>,
}

/// Segments that the receiver of a message has read, and its grant: only the other segments are
/// sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub(crate) segments: Segments,
    pub(crate) here: Mask,
    /// End of the bytes that may leave.
    pub(crate) upto: u64,
}

impl SendXfer {
    /// Grants all bytes below `upto`.
    pub(crate) fn grant(&mut self, upto: u64) {
        match self.keys.as_mut().and_then(|keys| keys.has.as_mut()) {
            None => self.upto = self.upto.max(upto),
            Some(has) => {
                has.upto = has.upto.max(upto);
                self.skip();
            }
        }
    }

    /// Skips segments that the receiver has. Returns true if bytes may leave.
    pub(crate) fn skip(&mut self) -> bool {
        if let Some(has) = self.keys.as_ref().and_then(|keys| keys.has.as_ref()) {
            let rest = has.segments.first_outside(&has.here, self.next);
            let (start, end) = rest.unwrap_or((self.head.total, self.head.total));
            (self.next, self.upto) = (start, end.min(has.upto).max(start));
        }
        self.next < self.upto
    }
}

/// The head of a message; its number and checksum flag are set later.
#[inline]
pub(crate) fn head_of(spec: &SendSpec) -> MsgHead {
    MsgHead {
        number: 0,
        flags: spec.tag.map_or(0, |_| FLAG_TAGGED)
            | spec.data.map_or(0, |_| FLAG_CQ_DATA)
            | if spec.urgent_ack { FLAG_DELIVERY } else { 0 },
        tag: spec.tag.unwrap_or(0),
        data: spec.data.unwrap_or(0),
        total: spec.len,
    }
}

impl SendXfer {
    /// Returns whether the send is an RPC.
    #[inline]
    pub(crate) fn is_rpc(&self) -> bool {
        is_rpc(&self.head)
    }

    /// Returns whether the send is a remote write.
    #[inline]
    pub(crate) fn is_put(&self) -> bool {
        is_put(&self.head)
    }

    /// Returns whether the receiver's grant or answer ends the send, beside acks or without them.
    pub(crate) fn is_answered(&self) -> bool {
        match self.kind {
            SendKind::Rendezvous | SendKind::Reply => true,
            SendKind::Eager => self.is_put(),
            SendKind::Queued => false,
        }
    }
}

impl Inbound {
    /// Returns whether the message is an RPC.
    #[inline]
    pub(crate) fn is_rpc(&self) -> bool {
        self.head.as_ref().is_some_and(is_rpc)
    }
}

/// Returns whether the head is an RPC's.
#[inline]
pub(crate) fn is_rpc(head: &MsgHead) -> bool {
    head.flags & FLAG_RPC != 0
}

/// Returns whether a message with this head is matched with a receive.
#[inline]
pub(crate) fn is_matched(head: &MsgHead) -> bool {
    head.flags & (FLAG_PUT | FLAG_RPC) == 0
}

/// Returns whether the head is a remote write's.
#[inline]
pub(crate) fn is_put(head: &MsgHead) -> bool {
    head.flags & FLAG_PUT != 0
}

impl Inbound {
    /// Returns whether the message is a remote write.
    pub(crate) fn is_put(&self) -> bool {
        self.head.as_ref().is_some_and(is_put)
    }

    /// Returns whether fragments go into memory that the program sees. (An eager remote write of
    /// which bytes came before its place was known goes there as a whole, from its bounce buffer.)
    pub(crate) fn is_visible(&self) -> bool {
        let bound = matches!(self.state, InboundState::Bound { .. });
        bound && !self.bounced && self.is_put()
    }

    /// Returns whether the writer of a remote write waits for an answer at its end.
    pub(crate) fn is_answered(&self) -> bool {
        !self.rendezvous && self.own.is_none() && self.is_put()
    }

    /// The reason for dropping a fragment that was not granted.
    pub(crate) fn no_place(&self) -> DropReason {
        match self.state {
            InboundState::Refused => DropReason::NoMemory,
            _ => DropReason::Invalid,
        }
    }
}

impl Inbound {
    /// Offset of the last block.
    pub(crate) fn end_at(&self) -> u64 {
        blocks(self.total).saturating_sub(1) * BLOCK_BYTES
    }
}
