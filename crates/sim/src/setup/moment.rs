//! Moments in a message's life at which a rail may fail.

use marline_wire::{Frame, FLAG_READ_REPLY};

/// A moment, identified by the packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The first fragment of an eager message.
    Eager,
    /// The request of a rendezvous message (RTS).
    Request,
    /// A grant for a rendezvous message (CTS).
    Grant,
    /// A fragment.
    Data,
    /// A remote write of a fragment.
    Write,
    /// An ack for the last outstanding send of a peer.
    Ack,
}

/// A failure of a rail.
#[derive(Clone, Copy, Debug)]
pub struct Strike {
    /// When.
    pub moment: Moment,
    /// The ordinal of the packet among the rail's packets of this kind, from 1.
    pub nth: u64,
    /// The rail.
    pub rail: usize,
    /// True for the rail of the message's sender, false for its receiver's.
    pub senders: bool,
    /// True if the rail's owner is notified; otherwise its packets are lost silently.
    pub notified: bool,
    /// Duration of the failure.
    pub lasts_ns: u64,
}

impl Moment {
    /// True if a frame belongs to this moment.
    pub(crate) fn shown_by<H, M>(self, frame: &Frame<H, M>) -> bool {
        match frame {
            Frame::Eager(_) => self == Moment::Eager,
            Frame::Rts(_) => self == Moment::Request,
            Frame::Grant(grant) => self == Moment::Grant && grant.upto > 0,
            Frame::Data(data) => self == Moment::Data && data.flags & FLAG_READ_REPLY == 0,
            Frame::Ack(_) => self == Moment::Ack,
            _ => false,
        }
    }

    /// True if the message's sender sends the packet.
    pub(crate) fn is_senders(self) -> bool {
        !matches!(self, Moment::Grant | Moment::Ack)
    }
}
