//! RPCs: short messages between engines (remote writes, atomics and their replies). Like all
//! messages they arrive exactly once and in order, but they match no receive: each goes to the
//! owner when it is complete, and no later message is matched before it. Their memory is freed at
//! once, so they may use the credit reserved for requests.

use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::transfer::SendKind;
use marline_wire::{MsgHead, FLAG_RPC, FLAG_UNSUMMED};

/// Longest RPC in bytes. Its credit cost fits the credit reserved for requests, so that an RPC gets
/// through even if the peer has many unreceived messages.
pub const RPC_MAX: usize = 4_096;

impl Node {
    /// Posts an RPC of `len` bytes of `handle` (at most [`RPC_MAX`]), with two words for the peer's
    /// owner. `false`: the peer is gone (no event follows), or is this endpoint, which needs no
    /// RPCs.
    pub fn post_rpc(&mut self, handle: u32, peer: PeerId, words: (u64, u64), len: u64) -> bool {
        debug_assert!(len <= RPC_MAX as u64);
        let head = MsgHead {
            number: 0,
            flags: FLAG_RPC,
            tag: words.0,
            data: words.1,
            total: len,
        };
        !self.is_loopback(peer) && self.post_message(handle, peer, head, false)
    }

    /// Lengthens the RPC whose first word is `first`, and whose second word is one of `second`, to
    /// `len` bytes (at most [`RPC_MAX`]), and makes its second word the last of these, if it is the
    /// last message posted to a peer and nothing of it has left. Returns its handle. (Both ends
    /// number their RPCs: an answer to the peer's may have the same first word.)
    pub fn extend_rpc(
        &mut self,
        peer: PeerId,
        (first, second): (u64, [u64; 2]),
        len: u64,
    ) -> Option<u32> {
        debug_assert!(len <= RPC_MAX as u64);
        let flag = self.cfg.sum_flag(len);
        let last = *self.conn(peer)?.tx.queue.back()?;
        let send = self.outgoing.get_mut(last)?;
        let unsent = send.kind == SendKind::Queued && send.next == 0;
        let is_it = send.head.tag == first && second.contains(&send.head.data);
        if !unsent || !send.is_rpc() || !is_it {
            return None;
        }
        let more = len - send.head.total;
        send.head.flags = send.head.flags & !FLAG_UNSUMMED | flag;
        (send.head.data, send.head.total, send.wanted) = (second[1], len, len);
        let handle = send.handle;
        self.conn_mut(peer)?.stats.bytes_sent += more;
        Some(handle)
    }
}
