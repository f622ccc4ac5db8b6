//! Posting of sends, receives, peeks, claims and cancels.

use crate::base::slab::Key;
use crate::base::stats::SIZE_CLASSES;
use crate::base::types::{Claim, Event, PeerId, RecvSpec, SendSpec, Source};
use crate::message::rpc::is_rpc;
use crate::node::Node;
use crate::state::matching::Found;
use crate::state::operations::Multi;
use crate::state::transfer::{head_of, new_send, InboundState, SendKind};
use marline_wire::{MsgHead, BLOCK_BYTES, FLAG_PUT, FLAG_TAGGED};

/// A message found by a peek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Sender.
    pub peer: PeerId,
    /// Matching head, with the message's length.
    pub head: MsgHead,
}

impl Node {
    /// Posts a send. `false`: the peer is gone (no event follows).
    pub fn post_send(&mut self, spec: &SendSpec) -> bool {
        self.post_message(spec.handle, spec.peer, head_of(spec), false)
    }

    /// Posts a send whose payload, whatever its length, leaves only after a receive has matched the
    /// request: for a send that must not complete earlier (packets are acknowledged on arrival,
    /// matched or not), or is better copied only once ([`Node::copies_once`]).
    pub fn post_asked(&mut self, spec: &SendSpec) -> bool {
        self.post_message(spec.handle, spec.peer, head_of(spec), true)
    }

    /// Posts a message with this head, whose number and sum flag are set here; `waits`: send only a
    /// request first. `false`: the peer is gone.
    #[inline(always)]
    pub(crate) fn post_message(
        &mut self,
        handle: u32,
        peer: PeerId,
        mut head: MsgHead,
        waits: bool,
    ) -> bool {
        self.ensure_conn(peer);
        let Some(mut conn) = self.take(peer) else {
            return false;
        };
        let alive = !conn.session.is_over();
        if alive {
            let len = head.total;
            head.number = conn.tx.next_number as u32;
            head.flags |= self.cfg.sum_flag(len);
            conn.tx.next_number += 1;
            conn.stats.messages_sent += 1;
            conn.stats.bytes_sent += len;
            let class = SIZE_CLASSES.iter().position(|&c| len <= c).unwrap_or(6);
            self.stats.sent_by_size[class] += 1;
            if conn.session.own {
                self.send_loopback(conn, handle, head);
                return true;
            }
            let mut send = new_send(handle, peer, head, SendKind::Queued);
            send.waits = waits;
            let key = self.ops.sends.insert(send);
            conn.tx.queue.push_back(key);
            self.run_queue.mark_ready(&mut conn);
        }
        self.put(conn);
        alive
    }

    /// Posts a receive; takes a matching unexpected message at once. `now_ns` starts the keepalive
    /// probes of a named peer.
    pub fn post_recv(&mut self, spec: &RecvSpec, now_ns: u64) {
        if spec.multi_min.is_none() {
            if let Some(waiting) = self.ops.matching.find_unexpected(spec, true) {
                let found = Found {
                    handle: spec.handle,
                    base: 0,
                    capacity: spec.capacity,
                    directed: false,
                    stays: false,
                    ignore: spec.wanted().1,
                };
                self.bind(waiting.inbound, &found, now_ns);
                return;
            }
        }
        let gone = !self.watch(spec, now_ns) || !self.await_anyone(spec, now_ns);
        if spec.multi_min.is_some() {
            self.ops.multi.insert(spec.handle, Multi::default());
            self.post_multi(spec, now_ns);
        } else {
            self.ops.matching.post(*spec);
        }
        if gone && self.cancel_recv(spec.handle) && !self.ops.multi.contains_key(&spec.handle) {
            self.events.push_back(Event::RecvFailed {
                handle: spec.handle,
            });
        }
    }

    /// Registers (`waits`) or unregisters an operation, other than a message, that waits for the
    /// peer: meanwhile the peer gets keepalive probes, and [`Node::peer_gone`] reports its end.
    pub fn watch_peer(&mut self, now_ns: u64, peer: PeerId, waits: bool) {
        if waits {
            self.ensure_conn(peer);
        }
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        conn.rx.watchers = match waits {
            true => conn.rx.watchers + 1,
            false => conn.rx.watchers.saturating_sub(1),
        };
        self.touch_soon(peer, now_ns);
    }

    /// Starts the keepalive probes of the peer that a receive names; `false`: that peer is gone.
    fn watch(&mut self, spec: &RecvSpec, now_ns: u64) -> bool {
        let Source::Peer(peer) = spec.source else {
            return true;
        };
        self.ensure_conn(peer);
        let Some(conn) = self.conn_mut(peer) else {
            return false;
        };
        conn.rx.watchers += 1;
        let alive = !conn.session.is_over();
        self.touch_soon(peer, now_ns);
        alive
    }

    /// Posts a multi-receive after it has taken every matching unexpected message that fits.
    fn post_multi(&mut self, spec: &RecvSpec, now_ns: u64) {
        self.ops.matching.post(*spec);
        while let Some(waiting) = self.ops.matching.find_unexpected(spec, false) {
            let Some(head) = self.ops.inbounds.get(waiting.inbound).and_then(|i| i.head) else {
                break;
            };
            let Some(found) = self.ops.matching.arrive(waiting.peer, &head) else {
                break;
            };
            self.ops.matching.find_unexpected(spec, true);
            self.note_multi(&found);
            if let Some(conn) = self.conn_mut(waiting.peer) {
                conn.rx.watchers -= found.unwatches();
            }
            self.bind(waiting.inbound, &found, now_ns);
            if found.handle == spec.handle && !found.stays {
                break;
            }
        }
    }

    /// Counts a message in flight into a multi-receive buffer.
    pub(crate) fn note_multi(&mut self, found: &Found) {
        if let Some(multi) = self.ops.multi.get_mut(&found.handle) {
            multi.outstanding += 1;
            multi.retired |= !found.stays;
        }
    }

    /// Binds the message that is next in order to a receive, or stores it as unexpected.
    pub(crate) fn match_head(&mut self, peer: PeerId, head: &MsgHead, key: Key, now: u64) {
        if head.flags & FLAG_PUT != 0 {
            return self.ask_place(peer, head, key, now);
        }
        if is_rpc(head) {
            return self.take_rpc(peer, head, key);
        }
        if let Some(found) = self.ops.matching.arrive(peer, head) {
            self.note_multi(&found);
            if let Some(conn) = self.conn_mut(peer) {
                conn.rx.watchers -= found.unwatches();
            }
            self.bind(key, &found, now);
        } else {
            self.ops.matching.add_unexpected(peer, head, key);
            if let Some(inbound) = self.ops.inbounds.get_mut(key) {
                inbound.state = InboundState::Unexpected;
            }
            self.finish_if_complete(key);
        }
    }

    /// Binds an unexpected (or just arrived) message to a receive.
    pub(crate) fn bind(&mut self, key: Key, found: &Found, now_ns: u64) {
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        let Found {
            handle,
            base,
            capacity,
            ..
        } = *found;
        inbound.state = InboundState::Bound {
            handle,
            base,
            capacity,
        };
        if inbound.own.is_some() {
            return self.deliver_loopback(key);
        }
        if inbound.rendezvous {
            // Whole blocks, so that fragments stay regular; the excess is cut off when stored.
            inbound.wanted = inbound
                .total
                .min(capacity.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
            if !self.pull(key) {
                if self.local.writes {
                    self.want_keys(key);
                }
                self.want_grant(key, now_ns);
            }
        }
        self.order_completion(key, found.ignore);
        self.finish_if_complete(key);
    }

    /// Registers a bound tagged message for completion in order.
    fn order_completion(&mut self, key: Key, ignore: u64) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let Some(head) = inbound.head.filter(|h| h.flags & FLAG_TAGGED != 0) else {
            return;
        };
        let (at, tag) = ((inbound.peer, inbound.number), (head.tag, ignore));
        if !inbound.complete() || self.ops.completion_order.waits(at, tag) {
            self.ops.completion_order.enter(at, tag, key);
        }
    }

    /// Looks for an unexpected message; with `claim` it is set aside for `recv_claimed`.
    pub fn peek(&mut self, spec: &RecvSpec, claim: bool) -> Option<(Peeked, Option<Claim>)> {
        let waiting = self.ops.matching.find_unexpected(spec, claim)?;
        let inbound = self.ops.inbounds.get_mut(waiting.inbound)?;
        let head = inbound.head?;
        if claim {
            inbound.state = InboundState::Claimed;
        }
        let claimed = claim.then_some(Claim(waiting.inbound));
        Some((
            Peeked {
                peer: waiting.peer,
                head,
            },
            claimed,
        ))
    }

    /// Receives a claimed message into `handle`. `false`: it is gone (its sender died).
    pub fn recv_claimed(&mut self, claim: Claim, spec: &RecvSpec, now_ns: u64) -> bool {
        let live = self.ops.inbounds.get(claim.0).is_some();
        let found = Found {
            handle: spec.handle,
            base: 0,
            capacity: spec.capacity,
            directed: false,
            stays: false,
            ignore: spec.wanted().1,
        };
        self.bind(claim.0, &found, now_ns);
        live
    }

    /// Discards a claimed message and returns its description. `None`: it is gone (its sender
    /// died).
    pub fn discard_claimed(&mut self, claim: Claim) -> Option<Peeked> {
        let inbound = self.ops.inbounds.get_mut(claim.0)?;
        inbound.state = InboundState::Discard;
        let (peer, head) = (inbound.peer, inbound.head);
        if inbound.own.is_some() {
            self.deliver_loopback(claim.0);
        } else {
            if inbound.rendezvous {
                inbound.wanted = 0;
                self.queue_grant(claim.0);
            }
            self.finish_if_complete(claim.0);
        }
        Some(Peeked { peer, head: head? })
    }

    /// Cancels a posted receive that is not matched yet; `false`: not found.
    pub fn cancel_recv(&mut self, handle: u32) -> bool {
        let Some(posted) = self.ops.matching.cancel(handle) else {
            return false;
        };
        self.unwatch(&posted.spec);
        match self.ops.multi.get_mut(&handle) {
            Some(multi) if multi.outstanding > 0 => multi.retired = true,
            _ => drop(self.ops.multi.remove(&handle)),
        }
        true
    }

    /// Returns whether messages are still in flight into a cancelled multi-receive: the last one's
    /// event ends it.
    pub fn still_receives(&self, handle: u32) -> bool {
        self.ops.multi.contains_key(&handle)
    }

    /// Cancels any posted receive, for closing. Returns its handle; `None`: no more are posted.
    pub fn take_posted(&mut self) -> Option<u32> {
        let posted = self.ops.matching.take_any()?;
        self.unwatch(&posted.spec);
        Some(posted.spec.handle)
    }

    fn unwatch(&mut self, spec: &RecvSpec) {
        if let Source::Peer(peer) = spec.source {
            if let Some(conn) = self.conn_mut(peer) {
                conn.rx.watchers = conn.rx.watchers.saturating_sub(1);
            }
        }
    }
}
