//! Moments of a message at which a rail may fail.

use marline_wire::{Frame, FLAG_READ_REPLY};

/// A moment of a message, by what leaves in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The first fragment of an eager message.
    Eager,
    /// The request of a rendezvous message (RTS).
    Request,
    /// A grant for it (CTS).
    Grant,
    /// A fragment.
    Data,
    /// A remote write of a fragment.
    Write,
    /// An ack for an end that waits for the last one of its sends.
    Ack,
}

/// One failure of a rail.
#[derive(Clone, Copy, Debug)]
pub struct Strike {
    /// When.
    pub moment: Moment,
    /// The so-manieth such packet of the rail, from 1.
    pub nth: u64,
    /// The rail.
    pub rail: usize,
    /// It is the rail of the message's sender, not of its receiver.
    pub senders: bool,
    /// Its owner is told that it is down; else nothing arrives there any more, and nobody says so.
    pub told: bool,
    /// It comes back after so long.
    pub lasts_ns: u64,
}

impl Moment {
    /// True if a frame shows it.
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

    /// True if the packet that shows it is of the message's sender.
    pub(crate) fn is_senders(self) -> bool {
        !matches!(self, Moment::Grant | Moment::Ack)
    }
}
