//! Grants: who may send how much of which rendezvous message, so that all of it fits half of the
//! kernel's receive buffer (design rule 4).

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::grants::GRANT_STEP;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState, SendKind};
use marline_wire::{Grant, FLAG_READ_REPLY, FLAG_REFUSED, GRANULE};

/// Data that does not come for so long no longer holds back the grants of others.
const STALE_NS: u64 = 5_000_000;
/// Number of messages that wait for a grant among which a later one of the same sender is looked
/// for: what is farther behind does not get its grant soon.
const LOOK_AHEAD: usize = 64;

/// A message whose window has so much room gets more: the rest is time enough for the frame to get
/// there.
fn step_of(window: u64) -> u64 {
    GRANT_STEP.max(window / 4)
}

impl Node {
    /// The message wants (more) grant: queue it if it is worth a frame, and hand out.
    pub(crate) fn want_grant(&mut self, key: Key, now: u64) {
        // Not every call knows the time: a grant must not be stale when it is made.
        let now = now.max(self.absences.last_poll_ns);
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

    /// A message waits for (more) grant. One that had a part goes before later ones of its sender,
    /// which would else end first, and behind all of others.
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

    /// Hands out grants in queue order while the budget lasts.
    pub(crate) fn pump_grants(&mut self, now: u64) {
        let window = self.grants.window_max();
        self.grants.at = u64::MAX;
        // A quarter of the budget at once, in one packet: what is still out keeps senders busy.
        let mut least = match self.grants.out {
            0 => 0,
            _ => self.grants.budget / 4,
        };
        // What came or is granted now may be stale by then. (Callers differ a little in `now`.)
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
            // Whole writes, or else whole granules, but for the message's end.
            let give = if give == left {
                give
            } else {
                self.whole_writes(inbound, give) / GRANULE * GRANULE
            };
            // A budget below two steps (a tiny receive buffer) is given out in halves.
            let step = (GRANT_STEP - GRANULE).min(self.grants.budget / 2);
            if budget < least || give < left.min(step) {
                if self.forgive_stale(now) {
                    continue;
                }
                // Nothing else may call here again: what holds the budget may be silent.
                self.grants.at = now + STALE_NS;
                return;
            }
            let inbound = self.ops.inbounds.get_mut(key).expect("looked up above");
            let comes = give - inbound.read_of(inbound.granted, inbound.granted + give);
            inbound.granted += give;
            inbound.counted += comes;
            inbound.last_data_ns = now;
            // Where the budget ended in its middle it is the next, not the last.
            inbound.in_grant_queue = give < left && inbound.counted + step_of(window) <= window;
            self.grants.out += comes;
            least = 0;
            if !inbound.in_grant_queue {
                self.grants.queue.pop_front();
            }
            self.queue_grant(key);
        }
    }

    /// As much of a grant as makes whole writes, if the message is written: a shorter one between
    /// two long ones costs nearly as much as they do. (One of nine was, and half as long.) Nothing,
    /// if more will do when what is under way has come.
    fn whole_writes(&self, inbound: &Inbound, give: u64) -> u64 {
        let span = match inbound.keys.asked {
            true => self.write_span(inbound.peer),
            false => None,
        };
        // In windows of few writes parts are better than waiting.
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

    /// Stops counting grants whose data does not come; whether that freed any.
    fn forgive_stale(&mut self, now: u64) -> bool {
        let Node {
            grants,
            ops,
            directory,
            absences,
            ..
        } = self;
        // Data that waits in our sockets is no data that does not come.
        if now < grants.stale_at || absences.is_behind(now) {
            return false;
        }
        // Of those that are granted from now on none is stale earlier.
        let mut next = now + STALE_NS + 1;
        let stale = ops.inbounds.iter().find_map(|(key, i)| {
            let counts = i.rendezvous && i.counted > 0;
            let away_ns = directory
                .conn(i.peer)
                .map_or(0, |conn| absences.patience_ns(&conn.life));
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

    /// Queues a GRANT frame with the message's latest numbers.
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
                // The message is over at once: its frame must not depend on it.
                Some(frame) => conn.tx.control.push_back(frame),
                None if conn.tx.grants.back() == Some(&key) => {}
                None => conn.tx.grants.push_back(key),
            }
            self.agenda.mark_ready(conn);
        }
    }

    /// The GRANT frame of an inbound message as it stands now. Its data has time from the first
    /// frame that speaks of it: when it was granted, the last poll was perhaps long ago.
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

    /// The receiver of one of our messages granted bytes.
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
        send.wanted = send
            .wanted
            .min(whole_granules(grant.wanted, send.head.total));
        let upto = whole_granules(grant.upto, send.head.total);
        send.grant(upto.min(send.wanted));
        let more = send.next < send.upto && !send.in_bulk;
        send.in_bulk |= more;
        debug_assert!(matches!(send.kind, SendKind::Rendezvous | SendKind::Reply));
        if let Some(conn) = self.directory.conn_mut(peer) {
            if more {
                conn.tx.bulk.push_back(key);
            }
            self.agenda.mark_ready(conn);
        }
        self.finish_send_if_done(key);
    }
}

/// Cuts a number of bytes that a peer named, of a message of `total` bytes, to whole granules: a
/// fragment that ends within one, other than the message's last, would be no fragment.
pub(crate) fn whole_granules(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        total
    } else {
        bytes - bytes % GRANULE
    }
}
