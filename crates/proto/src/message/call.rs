//! Calls: short messages from owner to owner (remote writes, atomics and their answers). They are
//! messages as any others, so each arrives exactly once and in its order; but no receive matches
//! them: each goes to the owner when it is whole, and nothing behind it is matched before. Its
//! memory is free again at once, so calls may use the credit that is left to requests.

use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, SendKind, SendXfer};
use marline_wire::{MsgHead, FLAG_CALL, FLAG_UNSUMMED};

/// Bytes of the longest call. With its cost in credit it fits the part that only requests may use:
/// a call passes however many messages the peer has not received yet.
pub const CALL_MAX: usize = 4_096;

impl Node {
    /// Posts a call of `len` bytes of `handle` (at most [`CALL_MAX`]), with two
    /// words for the peer's owner. `false`: the peer is gone (no event follows), or the endpoint
    /// itself, which needs no calls.
    pub fn post_call(&mut self, handle: u32, peer: PeerId, words: (u64, u64), len: u64) -> bool {
        debug_assert!(len <= CALL_MAX as u64);
        let head = MsgHead {
            number: 0,
            flags: FLAG_CALL,
            tag: words.0,
            data: words.1,
            total: len,
        };
        !self.is_own(peer) && self.post_message(handle, peer, head, false)
    }

    /// Lengthens the call whose first word is `words.0` to `len` bytes (at most [`CALL_MAX`]) and
    /// changes its second word, if it is the message posted last to a peer and nothing of it has
    /// left; its handle.
    pub fn extend_call(&mut self, peer: PeerId, words: (u64, u64), len: u64) -> Option<u32> {
        debug_assert!(len <= CALL_MAX as u64);
        let flag = self.cfg.sum_flag(len);
        let last = *self.conn(peer)?.tx.queue.back()?;
        let send = self.ops.sends.get_mut(last)?;
        let unsent = send.kind == SendKind::Queued && send.next == 0;
        if !unsent || !send.is_call() || send.head.tag != words.0 {
            return None;
        }
        let more = len - send.head.total;
        send.head.flags = send.head.flags & !FLAG_UNSUMMED | flag;
        (send.head.data, send.head.total, send.wanted) = (words.1, len, len);
        let handle = send.handle;
        self.conn_mut(peer)?.stats.bytes_sent += more;
        Some(handle)
    }

    /// The frame is part of a call.
    pub(crate) fn is_of_call(&self, frame: &FrameRef) -> bool {
        match frame {
            FrameRef::Data { xfer, .. } => self.ops.sends.get(*xfer).is_some_and(|s| s.is_call()),
            _ => false,
        }
    }

    /// The call that is next in its order, and whole: its owner takes it, with its bounce buffer.
    pub(crate) fn take_call(&mut self, peer: PeerId, head: &MsgHead, key: Key) {
        let Some(credit) = self.ops.inbounds.get(key).map(|i| i.credit) else {
            return;
        };
        if let Some(conn) = self.conn_mut(peer) {
            let number = conn.rx.expand(head.number);
            conn.rx.inbound.remove(&number);
            conn.stats.messages_received += 1;
            conn.stats.bytes_received += head.total;
        }
        self.drop_inbound(key);
        self.return_credit(peer, credit);
        self.events.push_back(Event::Called {
            peer,
            head: *head,
            bounce: key.name(),
        });
    }
}

impl SendXfer {
    /// It is a call.
    #[inline]
    pub(crate) fn is_call(&self) -> bool {
        is_call(&self.head)
    }
}

impl Inbound {
    /// It is a call.
    #[inline]
    pub(crate) fn is_call(&self) -> bool {
        self.head.as_ref().is_some_and(is_call)
    }
}

/// The message of this head is a call.
#[inline]
pub(crate) fn is_call(head: &MsgHead) -> bool {
    head.flags & FLAG_CALL != 0
}
