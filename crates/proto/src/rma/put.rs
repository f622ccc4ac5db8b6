//! Remote writes (`fi_write`, MPI's puts): messages that carry the address of their target. They
//! are ordered among the messages of their sender, but match no receive: the owner maps the key and
//! address in their head to memory. Grants, fragments and acks work as for any rendezvous message.
//!
//! Remote writes as short as eager messages need no grant, as the writer knows all that a grant
//! would say: their bytes leave at once, within credit. They end with the owner's answer, not with
//! acks: acks show that bytes arrived, not that memory took them, and after the ack of its packets
//! a write with a wrong key could not be reported any more. The answer is a grant of no bytes.

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
            self.ensure_conn(peer);
            let eager = self.takes_eager_puts(peer);
            return self.post_message(handle, peer, head, !eager);
        }
        // A write without bytes succeeds without asking the peer.
        let gone = self.peer_gone(peer);
        if !gone {
            self.events.push_back(Event::SendDone { handle, ok: true });
        }
        !gone
    }

    fn takes_eager_puts(&self, peer: PeerId) -> bool {
        self.conn(peer).is_some_and(|conn| conn.session.eager_puts)
    }

    /// True if the bytes of a remote write may leave as soon as it is posted.
    pub fn is_ready_for_put(&self, peer: PeerId, len: u64) -> bool {
        self.takes_eager_puts(peer) && self.is_ready_for(peer, len)
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
