//! The sending side: a root's broadcasts, cut into chunks within its window.

use super::mutation::GroupMutation;
use super::outgoing::{Bytes, Parity, Repair};
use super::state::Group;
use super::types::{Chunk, Content, GroupEvent, To};
use alloc::collections::BTreeSet;
use marline_wire::PARITY_MAX;

/// Round trips from the last chunk to the first TAIL: acknowledgements may be in flight.
pub(super) const REMIND_AFTER_TRIPS: u64 = 2;

impl Group {
    /// The next chunk to send: retransmissions first.
    pub(super) fn next_content(&mut self, now: u64) -> Option<(To, Content)> {
        if !self.pace.may_send(now) {
            return None;
        }
        let next = self.next_repair(now).or_else(|| self.next_parity());
        let (to, content) = next.or_else(|| self.next_own(now))?;
        self.pace.sent(now, content.len(), self.cfg.chunk);
        Some((to, content))
    }

    fn next_parity(&mut self) -> Option<(To, Content)> {
        let own = self.sending.get_mut(&self.cfg.me)?;
        own.parity.as_ref().filter(|parity| parity.due)?;
        let Parity {
            handle,
            chunk,
            ends,
            ..
        } = own.parity.take()?;
        if let Some(end) = ends {
            self.events.push_back(GroupEvent::Done { handle, end });
        }
        self.stats.parities += 1;
        let network = self.networks.pick(None);
        Some((To::All { network }, Content::Parity { handle, chunk }))
    }

    /// The next chunk of an own broadcast.
    fn next_own(&mut self, now: u64) -> Option<(To, Content)> {
        let (me, scheme) = (self.cfg.me, self.cfg.scheme);
        let bounded = !self.cfg.errs(GroupMutation::BoundlessWindow);
        let early = self.cfg.errs(GroupMutation::EndAtOnce);
        let after = REMIND_AFTER_TRIPS * self.trip.ns() + self.spread_max_ns();
        let own = self.sending.get_mut(&me)?;
        if bounded && !own.has_room(scheme.window) {
            return None;
        }
        let (handle, mut held) = own.cut(me, self.cfg.chunk)?;
        let (chunk, keep) = (held.chunk, held.bytes == Bytes::Copy);
        held.left_at = now;
        let after = match keep && scheme.nacks {
            true => own.reminder_backoff_ns(after),
            false => after,
        };
        own.pause_ns = after;
        own.remind_at = now + after;
        own.begins_to_wait();
        if scheme.parity > 0 && !scheme.alone {
            own.add_to_parity(handle, &chunk, scheme.parity.min(PARITY_MAX));
        }
        let to = match scheme.alone {
            true => To::Member(own.acked.members().next()?),
            false => {
                let network = self.networks.next();
                self.networks.sent(network);
                held.network = Some(network);
                To::All { network }
            }
        };
        let ended = own.finish(early);
        own.chunks.insert(chunk.number, held);
        self.send_alone(now, &chunk);
        if let Some((handle, end)) = ended {
            self.events.push_back(GroupEvent::Done { handle, end });
        }
        match to {
            To::All { .. } => self.stats.chunks += 1,
            To::Member(_) => self.stats.repairs += 1,
        }
        let content = Content::Own {
            handle,
            chunk,
            keep,
        };
        Some((to, content))
    }

    /// Queues a chunk, just sent or received, for unicast to the members that need unicast.
    pub(super) fn send_alone(&mut self, now: u64, chunk: &Chunk) {
        let (me, scheme, root) = (self.cfg.me, self.cfg.scheme, chunk.root);
        let (parts, dead) = (&self.parts, &self.dead);
        let Some(sending) = self.sending.get_mut(&root) else {
            return;
        };
        let mut members: BTreeSet<u16> = BTreeSet::new();
        if root == me && scheme.alone {
            members.extend(sending.acked.members().skip(1));
        } else {
            members.extend(sending.unreachable.keys());
            if root == me && scheme.direct {
                let co_roots = parts.co_roots(root);
                members.extend(co_roots.filter(|member| !dead.contains(member)));
            }
        }
        let Some(held) = sending.chunks.get_mut(&chunk.number) else {
            return;
        };
        if !members.is_empty() {
            held.repair = Some(Repair::to(now, members.iter().copied()));
        }
        for member in members {
            sending.send_to(now, chunk.number, member);
        }
    }
}
