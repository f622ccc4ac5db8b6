//! Posting of sends, receives, peeks, claims and cancels.

use crate::base::stats::SIZE_CLASSES;
use crate::base::types::{Claim, Event, PeerId, RecvSpec, SendSpec, Source};
use crate::incoming::matched::Peeked;
use crate::node::Node;
use crate::state::transfer::{head_of, new_send, SendKind};
use marline_wire::MsgHead;

impl Node {
    /// Posts a send. `false`: the peer is gone (no event follows).
    pub fn post_send(&mut self, spec: &SendSpec) -> bool {
        self.post_message(spec.handle, spec.peer, head_of(spec), false)
    }

    /// Posts a send whose payload, whatever its length, leaves only after a receive has matched the
    /// request. For a send that must not complete before the match (packets are acknowledged on
    /// arrival, matched or not), and for one that is better copied only once
    /// ([`Node::copies_once`]).
    pub fn post_asked(&mut self, spec: &SendSpec) -> bool {
        self.post_message(spec.handle, spec.peer, head_of(spec), true)
    }

    /// Posts a message with this head; its number and sum flag are set here. `waits`: only a
    /// request is sent first. `false`: the peer is gone.
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
                self.put(conn);
                let (incoming, mut ctx) = self.incoming();
                incoming.send_loopback(&mut ctx, peer, handle, head);
                return true;
            }
            let mut send = new_send(handle, peer, head, SendKind::Queued);
            send.waits = waits;
            let key = self.outgoing.insert(send);
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
            let (incoming, mut ctx) = self.incoming();
            if incoming.receive_unexpected(&mut ctx, spec, now_ns) {
                return;
            }
        }
        let named = match spec.source {
            Source::Peer(peer) => Some(peer),
            Source::Any => None,
        };
        if let Some(peer) = named {
            self.watch_peer(now_ns, peer, true);
        }
        let is_over = |peer| self.conn(peer).is_none_or(|conn| conn.session.is_over());
        let gone = named.is_some_and(is_over) || {
            let any_source = self.incoming.any_source_mut();
            !any_source.await_message(&self.cfg, spec, now_ns)
        };
        let (incoming, mut ctx) = self.incoming();
        if spec.multi_min.is_some() {
            incoming.post_multi(&mut ctx, spec, now_ns);
        } else {
            incoming.receives_mut().post(spec);
        }
        if gone && self.cancel_recv(spec.handle) && !self.still_receives(spec.handle) {
            self.events.push_back(Event::RecvFailed {
                handle: spec.handle,
            });
        }
    }

    /// Registers (`waits`) or unregisters an operation other than a message that waits for the
    /// peer. Meanwhile the peer gets keepalive probes, and [`Node::peer_gone`] reports its end.
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
        self.context().touch_soon(peer, now_ns);
    }

    /// Looks for an unexpected message; with `claim` the message is set aside for `recv_claimed`.
    pub fn peek(&mut self, spec: &RecvSpec, claim: bool) -> Option<(Peeked, Option<Claim>)> {
        self.incoming.peek(spec, claim)
    }

    /// Receives a claimed message into `handle`. `false`: its sender died and the message is gone.
    pub fn recv_claimed(&mut self, claim: Claim, spec: &RecvSpec, now_ns: u64) -> bool {
        let (incoming, mut ctx) = self.incoming();
        incoming.recv_claimed(&mut ctx, claim, spec, now_ns)
    }

    /// Discards a claimed message and returns its description. `None`: its sender died and the
    /// message is gone.
    pub fn discard_claimed(&mut self, claim: Claim) -> Option<Peeked> {
        let (incoming, mut ctx) = self.incoming();
        incoming.discard_claimed(&mut ctx, claim)
    }

    /// Cancels a posted receive that is not matched yet; `false`: not found.
    pub fn cancel_recv(&mut self, handle: u32) -> bool {
        let posted = self.incoming.receives_mut().cancel(handle);
        posted
            .map(|posted| self.directory.unwatch(&posted.spec))
            .is_some()
    }

    /// Returns whether messages are still in flight into a cancelled multi-receive: the event of
    /// the last of them ends the receive.
    pub fn still_receives(&self, handle: u32) -> bool {
        self.incoming.receives().still_receives(handle)
    }

    /// Cancels one posted receive, whichever, and returns its handle; for closing. `None`: no
    /// receive is posted.
    pub fn take_posted(&mut self) -> Option<u32> {
        let posted = self.incoming.receives_mut().take_any()?;
        self.directory.unwatch(&posted.spec);
        Some(posted.spec.handle)
    }
}
