//! Messages under way: on their way out (`SendXfer`) and on their way in (`Inbound`).

use crate::base::granules::GranuleSet;
use crate::base::slab::Key;
use crate::base::types::{Landing, PeerId, SendSpec};
use crate::state::offer::{Mask, PeerOffer, Segments};
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{
    granules, MsgHead, FLAG_CQ_DATA, FLAG_DELIVERY, FLAG_DEREGISTER, FLAG_READ_REPLY, FLAG_TAGGED,
    FLAG_UNSUMMED,
};

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKind {
    /// Not decided yet: its head has not left.
    Queued,
    /// Payload goes with the head.
    Eager,
    /// RTS, grant, data.
    Rendezvous,
    /// Answer to a peer's READ.
    Reply,
}

/// A message on its way out.
#[derive(Debug)]
pub struct SendXfer {
    pub handle: u32,
    pub peer: PeerId,
    pub kind: SendKind,
    pub head: MsgHead,
    pub urgent: bool,
    /// First byte that never left.
    pub next: u64,
    /// Bytes that may leave.
    pub upto: u64,
    /// Bytes that the receiver wants (all, unless it truncates).
    pub wanted: u64,
    pub granted: bool,
    pub acked: GranuleSet,
    pub in_bulk: bool,
    /// Its payload waits until the receiver asks for it, however short it is.
    pub waits: bool,
    /// The local rail by which its memory is offered, and how many of its segments were told.
    pub(crate) offered: Option<(u8, u16)>,
    /// Keys for writes. (Few messages have any, and short ones are moved with this.)
    pub keys: Option<Box<PeerKeys>>,
}

impl SendXfer {
    /// Flags of its fragments that come behind its head.
    pub(crate) fn fragment_flags(&self) -> u8 {
        let reply = self.kind == SendKind::Reply;
        self.head.flags & (FLAG_UNSUMMED | FLAG_DEREGISTER)
            | if reply { FLAG_READ_REPLY } else { 0 }
    }
}

/// Where an inbound message stands with matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundState {
    /// A message before it has not been matched yet.
    Held,
    /// No receive fits it.
    Unexpected,
    /// Belongs to receive `handle`, from `base` of its buffer, at most `capacity` bytes.
    Bound {
        handle: u32,
        base: u64,
        capacity: u64,
    },
    /// Claimed by a peek, or a remote write whose place was asked for.
    Claimed,
    /// A remote write that was refused. Until its writer knows, none of its packets counts as
    /// arrived.
    Refused,
    /// To be swallowed.
    Discard,
}

/// A message on its way in.
#[derive(Debug)]
pub struct Inbound {
    pub peer: PeerId,
    pub number: u64,
    pub head: Option<MsgHead>,
    pub total: u64,
    pub state: InboundState,
    pub rendezvous: bool,
    /// The send (or the answer to a read) of this endpoint that it is the message of.
    pub own: Option<u32>,
    /// Answer to our READ of that number.
    pub reply: bool,
    /// Some of it is in a bounce buffer (then all of it goes there).
    pub bounced: bool,
    /// The end of a remote write is in a bounce buffer, as it came before the rest.
    pub holds_end: bool,
    pub set: GranuleSet,
    /// Rendezvous: bytes wanted, granted.
    pub wanted: u64,
    pub granted: u64,
    /// Rendezvous: bytes granted of which a frame spoke.
    pub announced: u64,
    pub in_grant_queue: bool,
    pub last_data_ns: u64,
    /// Its unreceived grant counts against the budget.
    pub counted: u64,
    /// Unexpected bytes charged to the node's bound.
    pub charged: u64,
    /// Credit that its sender gets back when it is done.
    pub credit: u64,
    /// Remote keys of its memory.
    pub keys: Keys,
    /// Its sender's memory, which may be read.
    pub(crate) offer: Option<Box<PeerOffer>>,
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
        acked: GranuleSet::default(),
        in_bulk: false,
        waits: false,
        offered: None,
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
        set: GranuleSet::default(),
        wanted: total,
        granted: 0,
        announced: 0,
        in_grant_queue: false,
        last_data_ns: 0,
        counted: 0,
        charged: 0,
        credit: 0,
        keys: Keys::default(),
        offer: None,
    }
}

impl Inbound {
    /// Bytes below `to` from `from` on that were read, and are not asked for.
    pub(crate) fn read_of(&self, from: u64, to: u64) -> u64 {
        let inside = |offer: &PeerOffer| offer.segments.bytes_inside(&offer.here, from, to);
        self.offer.as_deref().map_or(0, inside)
    }

    /// Whose number its frames name: a message's (0), or a read's.
    pub(crate) fn kind_flag(&self) -> u8 {
        FLAG_READ_REPLY * self.reply as u8
    }

    /// Returns whether all that is wanted has arrived.
    pub(crate) fn complete(&self) -> bool {
        let wanted = matches!(
            self.state,
            InboundState::Bound { .. } | InboundState::Discard
        );
        if self.own.is_some() {
            wanted
        } else if self.rendezvous {
            wanted && (self.wanted == 0 || self.set.count() == granules(self.wanted))
        } else {
            self.set.count() == granules(self.total)
        }
    }
}

impl Inbound {
    /// Where bytes `offset .. offset + len` of it go.
    pub(crate) fn landing(&self, key: Key, offset: u64, len: u64) -> Landing {
        match self.state {
            InboundState::Discard => Landing::Discard,
            InboundState::Bound {
                handle,
                base,
                capacity,
            } if !self.bounced => {
                let copy = len.min(capacity.saturating_sub(offset)) as usize;
                // Beyond the buffer's end there is not even a place.
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

/// Keys of an inbound message.
#[derive(Debug, Default)]
pub struct Keys {
    /// The owner was asked for some.
    pub asked: bool,
    /// By local rail; empty when they were deregistered.
    pub by_rail: Vec<(u8, u64)>,
}

/// All that the receiver of a message told of it.
#[derive(Debug, Default)]
pub struct PeerKeys {
    /// Keys, by its rail.
    pub(crate) by_rail: Vec<(u8, u64)>,
    /// Segments that it has read, and what it granted.
    pub(crate) has: Option<Has>,
}

/// Segments that the receiver of a message has read, and its grant: only the rest is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub(crate) segments: Segments,
    pub(crate) here: Mask,
    /// Bytes that may leave.
    pub(crate) upto: u64,
}

impl SendXfer {
    /// Grants all below `upto`.
    pub(crate) fn grant(&mut self, upto: u64) {
        match self.keys.as_mut().and_then(|keys| keys.has.as_mut()) {
            None => self.upto = self.upto.max(upto),
            Some(has) => {
                has.upto = has.upto.max(upto);
                self.skip();
            }
        }
    }

    /// Goes past what its receiver has; whether something may leave.
    pub(crate) fn skip(&mut self) -> bool {
        if let Some(has) = self.keys.as_ref().and_then(|keys| keys.has.as_ref()) {
            let rest = has.segments.first_outside(&has.here, self.next);
            let (start, end) = rest.unwrap_or((self.head.total, self.head.total));
            (self.next, self.upto) = (start, end.min(has.upto).max(start));
        }
        self.next < self.upto
    }
}

/// The head of a message, but for its number and whether it has sums.
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
