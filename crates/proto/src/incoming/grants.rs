//! Grants: bytes that peers may send of each rendezvous message. All grants together fit half of
//! the kernel's receive buffer (docs/design/rendezvous.md).

use crate::base::mutation::Mutation;
use crate::base::slab::{Key, Slab};
use crate::state::context::Context;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Inbound, InboundState};
use crate::state::write_span::write_span;
use alloc::collections::VecDeque;
use marline_wire::{Grant, BLOCK_BYTES};

/// Smallest grant in bytes, unless the rest of the message is shorter: each grant costs a frame.
const GRANT_STEP: u64 = 32 * 1024;
/// Granted data that has not arrived after this time no longer counts against the budget.
const STALE_NS: u64 = 5_000_000;
/// Messages at the front of the grant queue among which later messages of the same sender are
/// searched. Messages farther back will not get a grant soon.
const LOOK_AHEAD: usize = 64;

/// Room in a message's window at which it gets a further grant: the rest of the window covers the
/// time until the grant arrives.
fn step_of(window: u64) -> u64 {
    GRANT_STEP.max(window / 4)
}

/// Granted bytes of all messages, and the queue for more. The messages are an argument of each
/// call.
#[derive(Debug)]
pub(crate) struct Grants {
    queue: VecDeque<Key>,
    /// Granted bytes that have not arrived, over all peers.
    out: u64,
    budget: u64,
    /// When to look for stale grants while messages wait for the budget.
    at: u64,
    /// No grant is stale before this time.
    stale_at: u64,
}

impl Grants {
    pub(crate) fn new(budget: u64) -> Grants {
        Grants {
            queue: VecDeque::new(),
            out: 0,
            budget,
            at: u64::MAX,
            stale_at: 0,
        }
    }

    /// Granted bytes that have not arrived.
    pub(crate) fn out(&self) -> u64 {
        self.out
    }

    /// The budget in bytes, and the number of messages that wait for it.
    pub(crate) fn limits(&self) -> (u64, usize) {
        (self.budget, self.queue.len())
    }

    /// When to call `pump` next, at the latest.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.at
    }

    /// The most bytes that one message may have granted but not received.
    pub(crate) fn window_max(&self) -> u64 {
        // At least two messages share the budget, so that a sender that computes does not stop all
        // others.
        (self.budget / 2).max(2 * GRANT_STEP)
    }

    /// Counts the first grant of a READ, which is part of the request, and makes the next search
    /// for stale grants look at all of them.
    pub(crate) fn give_first(&mut self, bytes: u64) {
        self.out += bytes;
        self.stale_at = 0;
    }

    /// Counts granted bytes that arrived or were withdrawn.
    #[inline]
    pub(crate) fn settle(&mut self, bytes: u64) {
        self.out -= bytes;
    }

    /// Queues a message that wants a grant, if the grant is worth a frame, and distributes grants.
    pub(crate) fn want(
        &mut self,
        messages: &mut Slab<Inbound>,
        ctx: &mut Context<'_>,
        key: Key,
        now: u64,
    ) {
        // Some callers pass an old time, with which a new grant would look stale.
        let now = now.max(ctx.descheduled.last_poll_ns);
        let window = self.window_max();
        let step = step_of(window);
        let Some(inbound) = messages.get_mut(key) else {
            return;
        };
        if inbound.wanted == 0 && inbound.granted == 0 {
            return Grants::announce(messages, ctx, key);
        }
        let wants = inbound.granted < inbound.wanted;
        if wants && !inbound.in_grant_queue && inbound.counted + step <= window {
            inbound.in_grant_queue = true;
            self.enqueue(messages, key);
        }
        self.pump(messages, ctx, now);
    }

    /// Queues a message for a grant. A partly granted message goes before later messages of its
    /// sender, so that it ends first, and behind the messages of all other senders.
    fn enqueue(&mut self, messages: &Slab<Inbound>, key: Key) {
        let inbound = messages.get(key);
        let begun = inbound.filter(|i| i.granted > 0).map(|i| i.peer);
        let next = |&at: &Key| messages.get(at).map(|i| i.peer);
        let before = begun.and_then(|peer| {
            let mut looked = self.queue.iter().take(LOOK_AHEAD);
            looked.position(|at| next(at) == Some(peer))
        });
        match before {
            Some(at) => self.queue.insert(at, key),
            None => self.queue.push_back(key),
        }
    }

    /// Distributes grants in queue order while the budget lasts.
    pub(crate) fn pump(&mut self, messages: &mut Slab<Inbound>, ctx: &mut Context<'_>, now: u64) {
        let window = self.window_max();
        self.at = u64::MAX;
        // Grant at least a quarter of the budget at once, in one packet, while outstanding grants
        // keep senders busy.
        let mut least = match self.out {
            0 => 0,
            _ => self.budget / 4,
        };
        // The next search: when data granted or arriving at this time may have become stale. (`now`
        // differs a little between callers.)
        self.stale_at = self.stale_at.min(now + STALE_NS + 1);
        while let Some(&key) = self.queue.front() {
            let waits = |i: &&Inbound| i.state != InboundState::Refused;
            let Some(inbound) = messages.get(key).filter(waits) else {
                self.queue.pop_front();
                continue;
            };
            let left = inbound.wanted - inbound.granted;
            let budget = match ctx.cfg.errs(Mutation::Overgrant) {
                true => window,
                false => self.budget.saturating_sub(self.out),
            };
            let give = left.min(window.saturating_sub(inbound.counted)).min(budget);
            // Whole writes, or at least whole blocks, except at the message's end.
            let give = if give == left {
                give
            } else {
                self.whole_writes(ctx, inbound, give) / BLOCK_BYTES * BLOCK_BYTES
            };
            // A budget below two steps (a tiny receive buffer) is distributed in halves.
            let step = (GRANT_STEP - BLOCK_BYTES).min(self.budget / 2);
            if budget < least || give < left.min(step) {
                if self.expire_stale(messages, ctx, now) {
                    continue;
                }
                // Peers that hold the budget may be silent, and then only a timer gets here again.
                self.at = now + STALE_NS;
                return;
            }
            let inbound = messages.get_mut(key).expect("looked up above");
            let comes = give - inbound.read_of(inbound.granted, inbound.granted + give);
            inbound.granted += give;
            inbound.counted += comes;
            inbound.last_data_ns = now;
            // A message cut short by the budget stays at the front of the queue.
            inbound.in_grant_queue = give < left && inbound.counted + step_of(window) <= window;
            self.out += comes;
            least = 0;
            if !inbound.in_grant_queue {
                self.queue.pop_front();
            }
            Grants::announce(messages, ctx, key);
        }
    }

    /// Reduces a grant to whole writes if rails write the message: a short write costs nearly as
    /// much as a long one. Returns 0 if a larger grant will be possible once the data in flight has
    /// arrived.
    fn whole_writes(&self, ctx: &Context<'_>, inbound: &Inbound, give: u64) -> u64 {
        let span = match inbound.keys.asked {
            true => ctx
                .conn(inbound.peer)
                .and_then(|conn| write_span(ctx.local, conn)),
            false => None,
        };
        // In windows of few writes, partial writes are better than waiting.
        let Some(span) = span.filter(|span| 4 * span <= self.window_max()) else {
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
    fn expire_stale(
        &mut self,
        messages: &mut Slab<Inbound>,
        ctx: &mut Context<'_>,
        now: u64,
    ) -> bool {
        // Unread data in local sockets is not stale.
        if now < self.stale_at || ctx.descheduled.is_catching_up(now) {
            return false;
        }
        // No grant made from now on can be stale before this.
        let mut next = now + STALE_NS + 1;
        let (directory, descheduled) = (&ctx.directory, ctx.descheduled);
        let stale = messages.iter().find_map(|(key, i)| {
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
        let Some(inbound) = stale.and_then(|key| messages.get_mut(key)) else {
            self.stale_at = next;
            return false;
        };
        self.settle(inbound.counted);
        inbound.counted = 0;
        true
    }

    /// Queues a GRANT frame with the message's current numbers.
    pub(crate) fn announce(messages: &Slab<Inbound>, ctx: &mut Context<'_>, key: Key) {
        let Some(inbound) = messages.get(key) else {
            return;
        };
        let peer = inbound.peer;
        // A READ carries its own first grant.
        if inbound.reply && inbound.granted == 0 {
            return;
        }
        let nothing = (inbound.wanted == 0).then_some(FrameRef::EmptyGrant {
            number: inbound.number as u32,
            flags: inbound.kind_flag(),
        });
        if let Some(conn) = ctx.directory.conn_mut(peer) {
            match nothing {
                // The message ends at once: the frame must not refer to it.
                Some(frame) => conn.tx.control.push_back(frame),
                None if conn.tx.grants.back() == Some(&key) => {}
                None => conn.tx.grants.push_back(key),
            }
            ctx.run_queue.mark_ready(conn);
        }
    }
}

impl Inbound {
    /// The GRANT frame of an inbound message with its current numbers. The stale timer of a grant
    /// starts with the first frame that announces it: the last poll may be long ago by then.
    pub(crate) fn grant_frame(&mut self, now: u64) -> Option<Grant> {
        if self.announced < self.granted {
            self.announced = self.granted;
            self.last_data_ns = self.last_data_ns.max(now);
        }
        let asked = matches!(
            self.state,
            InboundState::Bound { .. } | InboundState::Discard
        );
        asked.then_some(Grant {
            number: self.number as u32,
            flags: self.kind_flag(),
            upto: self.granted,
            wanted: self.wanted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::PeerId;
    use crate::state::context::testing::Parts;
    use crate::state::transfer::new_inbound;

    const BUDGET: u64 = 8 * GRANT_STEP;

    /// A bound rendezvous message of a peer.
    fn message(messages: &mut Slab<Inbound>, peer: u32, total: u64) -> Key {
        let bound = InboundState::Bound {
            handle: 0,
            base: 0,
            capacity: total,
        };
        let mut inbound = new_inbound(PeerId(peer), 0, total, bound);
        inbound.rendezvous = true;
        messages.insert(inbound)
    }

    #[test]
    fn two_messages_share_the_budget_and_a_third_waits() {
        let (mut parts, mut messages) = (Parts::with_peers(3), Slab::new());
        let mut grants = Grants::new(BUDGET);
        let keys = [0, 1, 2].map(|peer| message(&mut messages, peer, 1 << 30));
        for key in keys {
            grants.want(&mut messages, &mut parts.context(), key, 1);
        }
        let granted = keys.map(|key| messages.get(key).map_or(0, |i| i.granted));
        let half = BUDGET / 2 / BLOCK_BYTES * BLOCK_BYTES;
        assert_eq!(granted, [half, half, 0]);
        assert_eq!(grants.out(), 2 * half);
        assert_eq!(grants.deadline(), 1 + STALE_NS);
        assert_eq!(parts.run_queue.ready.len(), 2);
    }

    #[test]
    fn a_grant_whose_data_does_not_arrive_no_longer_counts() {
        let (mut parts, mut messages) = (Parts::with_peers(3), Slab::new());
        let mut grants = Grants::new(BUDGET);
        let keys = [0, 1, 2].map(|peer| message(&mut messages, peer, 1 << 30));
        for key in keys {
            grants.want(&mut messages, &mut parts.context(), key, 1);
        }
        let later = 10_000 * STALE_NS;
        grants.pump(&mut messages, &mut parts.context(), later);
        let third = messages.get(keys[2]).map_or(0, |i| i.granted);
        assert!(third > 0);
        let stale = messages.get(keys[0]).map(|i| (i.granted > 0, i.counted));
        assert_eq!(stale, Some((true, 0)));
    }

    #[test]
    fn nothing_wanted_is_announced_at_once() {
        let (mut parts, mut messages) = (Parts::with_peers(1), Slab::new());
        let mut grants = Grants::new(BUDGET);
        let key = message(&mut messages, 0, 1 << 20);
        messages.get_mut(key).expect("inserted above").wanted = 0;
        grants.want(&mut messages, &mut parts.context(), key, 1);
        let control = parts.directory.conn(PeerId(0)).map(|c| c.tx.control.len());
        assert_eq!((control, grants.out()), (Some(1), 0));
    }
}
