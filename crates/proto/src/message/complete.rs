//! Accounting of stored bytes, and completion of messages.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::state::transfer::InboundState;
use marline_wire::MsgHead;

impl Node {
    /// Records that blocks `start..start + n` (`len` bytes) of an inbound message are stored.
    pub(crate) fn commit(&mut self, now: u64, key: Key, start: u64, n: u64, len: u64) {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        inbound.set.insert(start, n);
        inbound.last_data_ns = now;
        if inbound.is_rpc() {
            let peer = inbound.peer;
            return self.advance_matching(now, peer);
        }
        if inbound.rendezvous {
            let paid = inbound.counted.min(len);
            inbound.counted -= paid;
            self.grants.settle(paid);
            self.want_grant(key, now);
        }
        self.finish_if_complete(key);
    }

    /// Ends an inbound message if it is complete, and those held back behind it.
    pub(crate) fn finish_if_complete(&mut self, key: Key) {
        let peer = self.ops.inbounds.get(key).map(|inbound| inbound.peer);
        self.end_inbound(key);
        if let Some(peer) = peer {
            self.finish_held(peer);
        }
    }

    /// Ends the held messages of a peer whose turn has come.
    pub(crate) fn finish_held(&mut self, peer: PeerId) {
        while let Some(key) = self.ops.completion_order.next(peer) {
            self.end_inbound(key);
        }
    }

    fn end_inbound(&mut self, key: Key) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let early = self.cfg.errs(Mutation::CompleteEarly) && inbound.set.count() > 0;
        if !inbound.complete() && !early {
            return;
        }
        let (peer, number, reply) = (inbound.peer, inbound.number, inbound.reply);
        let (state, bounced, total) = (inbound.state, inbound.bounced, inbound.total);
        let (credit, head) = (inbound.credit, inbound.head);
        if state == InboundState::Held {
            return;
        }
        if let Some(conn) = self.conn_mut(peer) {
            if reply {
                conn.rx.pending_reads.remove(&(number as u32));
            } else {
                conn.rx.inbound.remove(&number);
            }
        }
        let bounce = bounced.then(|| key.name());
        match state {
            InboundState::Bound {
                handle,
                base,
                capacity,
            } => {
                let at = (peer, number);
                let completion_order = reply || self.cfg.errs(Mutation::TellEarly);
                if !completion_order && self.ops.completion_order.hold(at) {
                    return;
                }
                self.show_end(key, (handle, base));
                self.drop_inbound(key);
                self.context().return_credit(peer, credit);
                if reply {
                    self.events.push_back(Event::ReadDone { handle, ok: true });
                } else if let Some(head) = head {
                    self.received(peer, head, handle, base, total.min(capacity), bounce);
                }
            }
            InboundState::Discard => {
                self.drop_inbound(key);
                self.context().return_credit(peer, credit);
                if let Some(inbound) = bounce {
                    self.events.push_back(Event::BounceFree { inbound });
                }
            }
            // Complete on the network, but not matched yet.
            _ => {}
        }
    }

    /// Frees an inbound message and everything charged for it.
    pub(crate) fn drop_inbound(&mut self, key: Key) {
        if let Some(inbound) = self.ops.inbounds.remove(key) {
            self.end_keys(key, &inbound.keys);
            if inbound.holds_end {
                self.events.push_back(Event::BounceFree {
                    inbound: key.name(),
                });
            }
            if !inbound.reply {
                self.ops
                    .completion_order
                    .leave((inbound.peer, inbound.number));
            }
            self.stats.unexpected_bytes -= inbound.charged;
            if !self.cfg.errs(Mutation::LeakGrants) {
                self.grants.settle(inbound.counted);
            }
        }
    }

    pub(crate) fn received(
        &mut self,
        peer: PeerId,
        head: MsgHead,
        handle: u32,
        offset: u64,
        len: u64,
        bounce: Option<u64>,
    ) {
        if let Some(conn) = self.conn_mut(peer) {
            conn.stats.messages_received += 1;
            conn.stats.bytes_received += head.total;
        }
        let last = self.ops.leave_multi(handle);
        self.events.push_back(Event::RecvDone {
            handle,
            peer,
            head,
            offset,
            len,
            bounce,
            last,
        });
    }
}
