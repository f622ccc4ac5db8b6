//! A member that will not speak again is taken out: nobody waits for it, and what it was the root
//! of ends.

use super::incoming::Receiving;
use super::mutation::GroupMutation;
use super::outgoing::{Bytes, Left};
use super::state::Group;
use super::types::{End, GroupEvent, To, Word};
use alloc::vec::Vec;
use marline_wire::Asked;

impl Group {
    /// A member will not speak again.
    pub fn on_dead(&mut self, now_ns: u64, member: u16) {
        self.take_out(now_ns, member, false);
    }

    /// A member has closed its endpoint, in order: it lacks nothing that it wanted, and does not
    /// speak again. Its last acknowledgement may have been lost.
    pub fn on_closed(&mut self, now_ns: u64, member: u16) {
        self.take_out(now_ns, member, true);
    }

    fn take_out(&mut self, now_ns: u64, member: u16, closed: bool) {
        if self.dead.contains(&member) || member >= self.members() {
            return;
        }
        self.dead.push(member);
        self.fail_receives(member);
        self.make_room(now_ns);
        if !self.cfg.errs(GroupMutation::AwaitDead) {
            self.forget_root(member);
            let roots: Vec<u16> = self.sending.keys().copied().collect();
            for root in roots {
                self.stop_waiting_for(now_ns, root, (member, closed));
            }
        }
        self.begin(now_ns);
    }

    /// Nothing is under way here ([`Group::held`]), and nothing more is posted. What is kept goes.
    /// Others may have missed an acknowledgement: whoever asks is answered that nothing is lacking.
    pub fn retire(&mut self) {
        self.retired = true;
        self.sending.clear();
        self.receiving = Receiving::default();
    }

    /// Says if [`Group::retire`] may be called: nothing is under way here. A co-root is asked for
    /// its part as well, of which it may have to hear yet.
    pub fn may_retire(&self) -> bool {
        let held = self.held();
        let over = held.operations == 0 && held.chunks == 0;
        over && self.cfg.scheme.co_roots == 0 && !self.retired
    }

    /// Says if [`Group::retire`] was called.
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Says if anything was posted.
    pub fn is_used(&self) -> bool {
        self.order.next() > 0 || !self.waiting.is_empty()
    }

    /// Copies of the chunks of a dead root are kept for nothing.
    fn forget_root(&mut self, root: u16) {
        let Some(kept) = self.sending.remove(&root) else {
            return;
        };
        let copies = kept.chunks.values().filter(|h| h.bytes == Bytes::Copy);
        self.kept_bytes -= copies.map(|held| held.chunk.len as u64).sum::<u64>();
        let next = u64::MAX;
        self.events.push_back(GroupEvent::Forget { root, next });
    }

    /// The dead member acknowledges nothing. What it lacked of own broadcasts ends with its name,
    /// unless it has `closed`; the members that it collected for acknowledge to this root from now
    /// on.
    fn stop_waiting_for(&mut self, now: u64, root: u16, (member, closed): (u16, bool)) {
        let own = root == self.cfg.me;
        let Some(sending) = self.sending.get_mut(&root) else {
            return;
        };
        let told = sending.acked.remove(member);
        sending.deaf.remove(&member);
        sending.in_pieces.remove(&member);
        if own {
            let lacked = if closed {
                None
            } else {
                Some(told.unwrap_or(u64::MAX))
            };
            let lacks = |left: &&mut Left| lacked.is_some_and(|lacked| left.end > lacked);
            let left = sending.left.iter_mut().filter(lacks);
            left.for_each(|left| left.dead = Some(member));
            sending.posts.iter_mut().for_each(|p| p.dead = Some(member));
            if !self.cfg.errs(GroupMutation::ForgetOrphans) {
                self.adopt_orphans(now, member);
            }
            self.end_if_alone();
        }
        self.settle(now, root);
    }

    /// Takes over the members that a dead co-root collected for, and tells each.
    fn adopt_orphans(&mut self, now: u64, co_root: u16) {
        let me = self.cfg.me;
        let (parts, dead) = (&self.parts, &self.dead);
        let orphans = parts.of(me, co_root).filter(|m| !dead.contains(m));
        let orphans: Vec<u16> = orphans.collect();
        let Some(own) = self.sending.get_mut(&me) else {
            return;
        };
        let (root, next) = (me, own.next);
        for orphan in orphans {
            own.acked.add(orphan, own.base);
            own.remind_at = own.remind_at.min(now + self.trip.ns());
            let asked = Asked::of(&[orphan]);
            let tail = Word::Tail { root, next, asked };
            self.words.push_back((To::Member(orphan), tail));
        }
    }

    /// With nobody left to send to, all own broadcasts are over.
    fn end_if_alone(&mut self) {
        let me = self.cfg.me;
        let Some(own) = self.sending.get_mut(&me).filter(|own| own.is_alone()) else {
            return;
        };
        let ended = own.posts.drain(..).map(|post| (post.handle, post.dead));
        let ended = ended.map(|(handle, dead)| GroupEvent::Done {
            handle,
            end: dead.map_or(End::Well, End::Dead),
        });
        self.events.extend(ended);
    }
}
