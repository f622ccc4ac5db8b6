//! Remote writes (`fi_write`, MPI's puts): messages that carry the address of their target. They
//! are ordered among the messages of their sender, but match no receive: the owner maps the key and
//! address in their head to memory. Grants, fragments and acks work as for any rendezvous message.
//! Short remote writes wait for a grant too, because after their packet's ack a wrong key could not
//! be reported any more.

use crate::base::types::{Claim, Event, PeerId};
use crate::node::Node;
use marline_wire::{MsgHead, FLAG_DELIVERY, FLAG_PUT};

/// The writer.
impl Node {
    /// Posts a remote write of `len` bytes of `handle` to the memory that `key` and `addr` name at
    /// `peer`; `flags`: see [`MsgHead`]. `false`: the peer is gone (no event follows).
    pub fn post_put(
        &mut self,
        handle: u32,
        peer: PeerId,
        (key, addr, len): (u64, u64, u64),
        flags: u8,
    ) -> bool {
        let head = MsgHead {
            number: 0,
            flags: FLAG_PUT | FLAG_DELIVERY | flags,
            tag: key,
            data: addr,
            total: len,
        };
        if len > 0 {
            return self.post_message(handle, peer, head, true);
        }
        // A write without bytes succeeds without asking the peer.
        let gone = self.peer_gone(peer);
        if !gone {
            self.events.push_back(Event::SendDone { handle, ok: true });
        }
        !gone
    }
}

/// The owner of the memory.
impl Node {
    /// Accepts a remote write into the memory of `handle`, which must have room for all of it. It
    /// ends with [`Event::RecvDone`] or, if the peer dies, [`Event::RecvFailed`]. `false`: the
    /// write is gone.
    pub fn accept_put(&mut self, claim: Claim, handle: u32) -> bool {
        let (incoming, mut ctx) = self.incoming();
        incoming.accept_put(&mut ctx, claim, handle)
    }

    /// Refuses a remote write, even an accepted one. After the resulting events are handled none of
    /// its bytes land, and the operation that it was accepted for gets no event.
    pub fn refuse_put(&mut self, claim: Claim, now_ns: u64) {
        let (incoming, mut ctx) = self.incoming();
        incoming.refuse_put(&mut ctx, claim, now_ns);
    }
}
