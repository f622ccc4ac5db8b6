//! Grants: bytes that a sender may send of each rendezvous message, limited so that all of them fit
//! half of the kernel's receive buffer (design rule 4).

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::grants::GRANT_STEP;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState, SendKind};
use marline_wire::{Grant, BLOCK_BYTES, FLAG_READ_REPLY, FLAG_REFUSED};

/// Granted data that does not arrive for this long no longer counts against the budget.
const STALE_NS: u64 = 5_000_000;
/// Messages in the grant queue that are searched for a later one of the same sender; those farther
/// behind will not get a grant soon.
const LOOK_AHEAD: usize = 64;

/// A message gets a further grant when its window has this much room: the remaining window covers
/// the flight of the grant.
fn step_of(window: u64) -> u64 {
    GRANT_STEP.max(window / 4)
}

impl Node {
    /// Queues a message that wants (more) grant, if that is worth a frame, and distributes grants.
    pub(crate) fn want_grant(&mut self, key: Key, now: u64) {
        // Some callers pass an old time, and a new grant must not be stale.
        let now = now.max(self.descheduled.last_poll_ns);
        let window = self.grants.window_max();
        let step = step_of(window);
        let Some(inbound) = self.ops.inbounds.get_mut(key) else {
            return;
        };
        if inbound.wanted == 0 && inbound.granted == 0 {
            return self.queue_grant(key);
        }
        let wants = inbound.granted < inbound.wanted;
        if wants && !inbound.in_grant_queue && inbound.counted + step <= window {
            inbound.in_grant_queue = true;
            self.queue_for_grant(key);
        }
        self.pump_grants(now);
    }

    /// Queues a message for a grant. A partly granted one goes before later messages of its sender,
    /// which would otherwise end first, and behind those of all other senders.
    fn queue_for_grant(&mut self, key: Key) {
        let inbound = self.ops.inbounds.get(key);
        let begun = inbound.filter(|i| i.granted > 0).map(|i| i.peer);
        let next = |&at: &Key| self.ops.inbounds.get(at).map(|i| i.peer);
        let before = begun.and_then(|peer| {
            let mut looked = self.grants.queue.iter().take(LOOK_AHEAD);
            looked.position(|at| next(at) == Some(peer))
        });
        match before {
            Some(at) => self.grants.queue.insert(at, key),
            None => self.grants.queue.push_back(key),
        }
    }

    /// Distributes grants in queue order while the budget lasts.
    pub(crate) fn pump_grants(&mut self, now: u64) {
        let window = self.grants.window_max();
        self.grants.at = u64::MAX;
        // At least a quarter of the budget at once, in one packet: outstanding grants keep senders
        // busy.
        let mut least = match self.grants.out {
            0 => 0,
            _ => self.grants.budget / 4,
        };
        // Data arriving or granted at this time may be stale by then. (Callers' `now` differ a
        // little.)
        self.grants.stale_at = self.grants.stale_at.min(now + STALE_NS + 1);
        while let Some(&key) = self.grants.queue.front() {
            let waits = |i: &&Inbound| i.state != InboundState::Refused;
            let Some(inbound) = self.ops.inbounds.get(key).filter(waits) else {
                self.grants.queue.pop_front();
                continue;
            };
            let left = inbound.wanted - inbound.granted;
            let budget = match self.cfg.errs(Mutation::Overgrant) {
                true => window,
                false => self.grants.budget.saturating_sub(self.grants.out),
            };
            let give = left.min(window.saturating_sub(inbound.counted)).min(budget);
            // Whole writes or else whole blocks, except at the message's end.
            let give = if give == left {
                give
            } else {
                self.whole_writes(inbound, give) / BLOCK_BYTES * BLOCK_BYTES
            };
            // A budget below two steps (a tiny receive buffer) is distributed in halves.
            let step = (GRANT_STEP - BLOCK_BYTES).min(self.grants.budget / 2);
            if budget < least || give < left.min(step) {
                if self.expire_stale_grants(now) {
                    continue;
                }
                // Sets a timer: no other event may trigger this if the peers that hold the budget
                // are silent.
                self.grants.at = now + STALE_NS;
                return;
            }
            let inbound = self.ops.inbounds.get_mut(key).expect("looked up above");
            let comes = give - inbound.read_of(inbound.granted, inbound.granted + give);
            inbound.granted += give;
            inbound.counted += comes;
            inbound.last_data_ns = now;
            // A message cut short by the budget stays at the front of the queue.
            inbound.in_grant_queue = give < left && inbound.counted + step_of(window) <= window;
            self.grants.out += comes;
            least = 0;
            if !inbound.in_grant_queue {
                self.grants.queue.pop_front();
            }
            self.queue_grant(key);
        }
    }

    /// Reduces a grant to whole writes if rails write the message: a shorter write between two long
    /// ones costs nearly as much as they do. Returns 0 if a larger grant will be possible when the
    /// data in flight has arrived.
    fn whole_writes(&self, inbound: &Inbound, give: u64) -> u64 {
        let span = match inbound.keys.asked {
            true => self.write_span(inbound.peer),
            false => None,
        };
        // In windows of few writes, partial writes are better than waiting.
        let Some(span) = span.filter(|span| 4 * span <= self.grants.window_max()) else {
            return give;
        };
        let granted = inbound.granted;
        let whole = ((granted + give) / span * span).saturating_sub(granted);
        if whole == 0 && inbound.counted == 0 {
            return give;
        }
        whole
    }

    /// Stops counting one grant whose data does not arrive. Returns whether there was one.
    fn expire_stale_grants(&mut self, now: u64) -> bool {
        let Node {
            grants,
            ops,
            directory,
            descheduled,
            ..
        } = self;
        // Unread data in local sockets is not stale.
        if now < grants.stale_at || descheduled.is_standby(now) {
            return false;
        }
        // Grants made from this time on are not stale earlier.
        let mut next = now + STALE_NS + 1;
        let stale = ops.inbounds.iter().find_map(|(key, i)| {
            let counts = i.rendezvous && i.counted > 0;
            let away_ns = directory
                .conn(i.peer)
                .map_or(0, |conn| descheduled.descheduled_grace_ns(&conn.life));
            let at = i.last_data_ns + STALE_NS.max(away_ns) + 1;
            if counts && at > now {
                next = next.min(at);
            }
            (counts && at <= now).then_some(key)
        });
        let Some(inbound) = stale.and_then(|key| ops.inbounds.get_mut(key)) else {
            grants.stale_at = next;
            return false;
        };
        grants.settle(inbound.counted);
        inbound.counted = 0;
        true
    }

    /// Queues a GRANT frame with the message's current numbers.
    pub(crate) fn queue_grant(&mut self, key: Key) {
        let Some(inbound) = self.ops.inbounds.get(key) else {
            return;
        };
        let peer = inbound.peer;
        // A READ carries its first grant itself.
        if inbound.reply && inbound.granted == 0 {
            return;
        }
        let nothing = (inbound.wanted == 0).then_some(FrameRef::EmptyGrant {
            number: inbound.number as u32,
            flags: inbound.kind_flag(),
        });
        if let Some(conn) = self.directory.conn_mut(peer) {
            match nothing {
                // The message ends at once, so the frame must not refer to it.
                Some(frame) => conn.tx.control.push_back(frame),
                None if conn.tx.grants.back() == Some(&key) => {}
                None => conn.tx.grants.push_back(key),
            }
            self.run_queue.mark_ready(conn);
        }
    }

    /// The GRANT frame of an inbound message with its current numbers. The stale timer starts with
    /// the first frame that announces a grant, because the last poll may be long ago when it is
    /// made.
    pub(crate) fn grant_frame(&mut self, key: Key, now: u64) -> Option<Grant> {
        let inbound = self.ops.inbounds.get_mut(key)?;
        if inbound.announced < inbound.granted {
            inbound.announced = inbound.granted;
            inbound.last_data_ns = inbound.last_data_ns.max(now);
        }
        let asked = matches!(
            inbound.state,
            InboundState::Bound { .. } | InboundState::Discard
        );
        asked.then_some(Grant {
            number: inbound.number as u32,
            flags: inbound.kind_flag(),
            upto: inbound.granted,
            wanted: inbound.wanted,
        })
    }

    /// Handles a grant from the receiver of a local message.
    pub(crate) fn on_grant(&mut self, peer: PeerId, grant: &Grant) {
        let reply = grant.flags & FLAG_READ_REPLY != 0;
        let Some(conn) = self.conn(peer) else { return };
        let table = if reply {
            &conn.tx.replies
        } else {
            &conn.tx.rendezvous
        };
        let Some(&key) = table.get(&grant.number) else {
            return;
        };
        if grant.flags & FLAG_REFUSED != 0 {
            return self.put_refused(peer, key);
        }
        let Some(send) = self.ops.sends.get_mut(key) else {
            return;
        };
        send.granted = true;
        send.wanted = send.wanted.min(whole_blocks(grant.wanted, send.head.total));
        let upto = whole_blocks(grant.upto, send.head.total);
        send.grant(upto.min(send.wanted));
        let more = send.next < send.upto && !send.in_bulk;
        send.in_bulk |= more;
        debug_assert!(matches!(send.kind, SendKind::Rendezvous | SendKind::Reply));
        if let Some(conn) = self.directory.conn_mut(peer) {
            if more {
                conn.tx.bulk.push_back(key);
            }
            self.run_queue.mark_ready(conn);
        }
        self.finish_send_if_done(key);
    }
}

/// Rounds a number of bytes from a peer, for a message of `total` bytes, down to whole blocks: a
/// fragment must not end within a block unless it is the message's last.
pub(crate) fn whole_blocks(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        total
    } else {
        bytes - bytes % BLOCK_BYTES
    }
}
