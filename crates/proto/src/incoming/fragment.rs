//! A received fragment, of either frame kind.

use crate::base::types::{sum_seed, sums_of, Payload};
use marline_wire::{Data, Eager, Header, MsgHead, FLAG_DEREGISTER, FLAG_READ_REPLY};

/// A fragment.
pub(crate) struct Fragment<'a> {
    pub number: u32,
    pub reply: bool,
    pub head: Option<MsgHead>,
    pub offset: u64,
    pub total: u64,
    pub payload: Payload<'a>,
    pub deregisters: bool,
}

impl<'a> Fragment<'a> {
    /// The first fragment of an eager message.
    #[inline]
    pub fn first(packet: &Header, frame: &Eager, bytes: &'a [u8]) -> Fragment<'a> {
        let head = frame.head;
        let seed = sum_seed(packet.src_id, head.number, false, 0, bytes.len());
        Fragment {
            number: head.number,
            reply: false,
            head: Some(head),
            offset: 0,
            total: head.total,
            payload: payload(packet, head.flags, seed, frame.sum, bytes),
            deregisters: false,
        }
    }

    /// Any fragment but the first.
    #[inline]
    pub fn further(packet: &Header, frame: &Data, bytes: &'a [u8]) -> Fragment<'a> {
        let reply = frame.flags & FLAG_READ_REPLY != 0;
        let seed = sum_seed(
            packet.src_id,
            frame.number,
            reply,
            frame.offset,
            bytes.len(),
        );
        Fragment {
            number: frame.number,
            reply,
            head: None,
            offset: frame.offset,
            total: frame.total,
            payload: payload(packet, frame.flags, seed, frame.sum, bytes),
            deregisters: frame.flags & FLAG_DEREGISTER != 0,
        }
    }
}

#[inline]
fn payload<'a>(packet: &Header, flags: u8, seed: u64, sum: u64, bytes: &'a [u8]) -> Payload<'a> {
    Payload {
        bytes,
        sum,
        seed,
        algorithm: sums_of(packet.algorithm, flags),
        verify_first: false,
    }
}
