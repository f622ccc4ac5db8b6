//! Removal of dead and closed members: no operation waits for them, and broadcasts with a dead root
//! end.

use super::incoming::Receiving;
use super::mutation::GroupMutation;
use super::outgoing::{Bytes, Left};
use super::state::Group;
use super::types::{End, Frame, GroupEvent, To};
use alloc::vec::Vec;
use marline_wire::Asked;

impl Group {
    /// Handles the death of a member.
    pub fn on_dead(&mut self, now_ns: u64, member: u16) {
        self.take_out(now_ns, member, false);
    }

    /// Handles the orderly close of a member's endpoint: the member has everything that it wanted,
    /// although its last acknowledgement may have been lost.
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

    /// Frees all state. Call this when nothing is in flight ([`Group::held`]) and nothing more will
    /// be posted. From then on TAILs, of members that missed an acknowledgement, are answered as if
    /// everything had arrived.
    pub fn retire(&mut self) {
        self.retired = true;
        self.sending.clear();
        self.receiving = Receiving::default();
    }

    /// Returns whether [`Group::retire`] may be called: nothing is in flight here. A group with
    /// co-roots never retires, because TAILs for a co-root's part may still come.
    pub fn may_retire(&self) -> bool {
        let held = self.held();
        let over = held.operations == 0 && held.chunks == 0;
        over && self.cfg.scheme.co_roots == 0 && !self.retired
    }

    /// Returns whether [`Group::retire`] was called.
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Returns whether anything was posted.
    pub fn is_used(&self) -> bool {
        self.order.next() > 0 || !self.waiting.is_empty()
    }

    /// Frees the copies of a dead root's chunks.
    fn forget_root(&mut self, root: u16) {
        let Some(kept) = self.sending.remove(&root) else {
            return;
        };
        let copies = kept.chunks.values().filter(|h| h.bytes == Bytes::Copy);
        self.kept_bytes -= copies.map(|held| held.chunk.len as u64).sum::<u64>();
        let next = u64::MAX;
        self.events.push_back(GroupEvent::Forget { root, next });
    }

    /// Stops waiting for a dead member's acknowledgements. Own broadcasts that the member did not
    /// have completely end with the member's number, unless it has `closed`. The members for which
    /// it collected acknowledge to this root from then on.
    fn stop_waiting_for(&mut self, now: u64, root: u16, (member, closed): (u16, bool)) {
        let own = root == self.cfg.me;
        let Some(sending) = self.sending.get_mut(&root) else {
            return;
        };
        let acked = sending.acked.remove(member);
        sending.unreachable.remove(&member);
        sending.in_pieces.remove(&member);
        if own {
            let lacked = if closed {
                None
            } else {
                Some(acked.unwrap_or(u64::MAX))
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

    /// Takes over the members that a dead co-root collected for, and sends each a TAIL.
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
            let tail = Frame::Tail { root, next, asked };
            self.frames.push_back((To::Member(orphan), tail));
        }
    }

    /// Ends all own broadcasts if no other member is left.
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
