//! A collector's work for its part: keeps chunks, retransmits losses, requests acknowledgements.

use super::mutation::GroupMutation;
use super::outgoing::{Again, Bytes, Held, Sending};
use super::pieces::piece_of;
use super::reachability::ROUND_NS;
use super::send::REMIND_AFTER_TRIPS;
use super::state::Group;
use super::types::{Chunk, Content, End, Frame, GroupEvent, Heard, To};
use alloc::vec::Vec;
use marline_wire::{AckFlags, Asked, Gaps, ASKED_MAX};

/// Longest pause between TAILs to members that have not acknowledged; pauses double up to it.
const REMIND_PAUSE_MAX_NS: u64 = 10_000_000;
/// One TAIL in this many goes by unicast, because multicast may not reach the members.
const ALONE_EVERY: u32 = 3;
/// Most members that get such a TAIL at a time.
const ALONE_MAX: usize = 64;
/// Least number of chunks in a NACK from which its losses indicate congestion.
const LOSSY_OF: u16 = 16;
impl Group {
    /// The next chunk to retransmit or to send by unicast.
    pub(super) fn next_repair(&mut self, now: u64) -> Option<(To, Content)> {
        for sending in self.sending.values_mut() {
            while let Some((number, to, piece)) = sending.repairs.pop() {
                let Some(held) = sending.chunks.get_mut(&number) else {
                    continue; // acknowledged meanwhile
                };
                held.repair.iter_mut().for_each(|repair| repair.leaves(now));
                held.left_at = now;
                let to = match to {
                    Some(member) => To::Member(member),
                    None => To::All {
                        network: self.networks.pick(held.network),
                    },
                };
                match to {
                    To::All { .. } => self.stats.repairs_to_all += 1,
                    To::Member(_) if piece > 0 => self.stats.pieces += 1,
                    To::Member(_) => self.stats.repairs += 1,
                }
                let chunk = match piece {
                    0 => held.chunk,
                    _ => piece_of(&held.chunk, piece),
                };
                let content = match held.bytes {
                    Bytes::Lent(handle) => Content::Own {
                        handle,
                        chunk,
                        keep: false,
                    },
                    Bytes::Copy => Content::Retained(chunk),
                };
                return Some((to, content));
            }
        }
        None
    }

    /// Returns whether a copy of a chunk is retained for this member's part, within the bound.
    pub(super) fn keeps(&self, chunk: &Chunk) -> bool {
        let bytes = self.kept_bytes + chunk.len as u64;
        let room = bytes <= self.cfg.keep_max || self.cfg.errs(GroupMutation::BoundlessRetained);
        room && self.parts.collects(chunk.root, self.cfg.me)
    }

    /// Handles a received chunk as a co-root: keeps a copy for its part, or only counts it. `here`:
    /// the chunk's bytes are stored; otherwise no operation here wants them.
    pub(super) fn keep(&mut self, now: u64, chunk: &Chunk, here: bool) {
        if !self.parts.collects(chunk.root, self.cfg.me) {
            return;
        }
        let keeps = here && self.keeps(chunk);
        let pause_ns = REMIND_AFTER_TRIPS * self.trip.ns() + self.spread_max_ns();
        let kept = self.sending_of(chunk.root);
        kept.next = kept.next.max(chunk.number + 1);
        kept.pause_ns = pause_ns;
        kept.remind_at = now + pause_ns;
        kept.begins_to_wait();
        if keeps {
            let held = Held {
                chunk: *chunk,
                bytes: Bytes::Copy,
                network: None,
                repair: None,
                left_at: now,
                turn: 0,
            };
            kept.chunks.insert(chunk.number, held);
            self.kept_bytes += chunk.len as u64;
            self.send_alone(now, chunk);
        }
        self.settle(now, chunk.root);
    }

    pub(super) fn on_ack(
        &mut self,
        now: u64,
        by: Heard,
        (root, next): (u16, u64),
        flags: AckFlags,
    ) {
        let own = root == self.cfg.me;
        let Some(sending) = self.sending.get_mut(&root) else {
            // Overheard by multicast, or about a dead root.
            self.stats.nonsense +=
                (by.network.is_none() && root >= self.who.members.len() as u16) as u64;
            return;
        };
        if own && next > sending.next {
            self.stats.nonsense += 1;
            return;
        }
        let Some(news) = sending.acked.advance(by.from, next) else {
            self.stats.nonsense += (by.network.is_none() && own) as u64;
            return;
        };
        if flags.unreachable {
            let doubt = sending.unreachable.entry(by.from).or_default();
            doubt.says_so(now);
            if !doubt.is_over() {
                sending.question_at = sending.question_at.min(now + ROUND_NS);
            }
        } else {
            sending.unreachable.remove(&by.from);
        }
        sending.lossy |= flags.lossy;
        let first = sending.reminded == 1;
        if let Some(at) = sending.reminded_at.take().filter(|_| first) {
            self.trip.sample(now.saturating_sub(at));
        }
        // Only news counts: a member without room repeats its acknowledgement after each TAIL.
        if news {
            sending.reminded = 0;
        }
        self.stats.heard += 1;
        if own && flags.lossy && self.pace.slow(now, self.trip.ns()) {
            self.stats.slowed += 1;
        }
        self.settle(now, root);
    }

    pub(super) fn on_nack(&mut self, now: u64, from: u16, root: u16, gaps: &Gaps) {
        let (hold_ns, all_from) = (self.trip.ns(), self.cfg.scheme.repair_all_from);
        let all_only = self.cfg.errs(GroupMutation::RepairAllOnly);
        let whole_only = self.cfg.errs(GroupMutation::WholeOnly);
        let all_from = if self.cfg.scheme.alone {
            u8::MAX
        } else {
            all_from
        };
        let Some(sending) = self.sending.get_mut(&root) else {
            self.stats.nonsense += (root >= self.who.members.len() as u16) as u64;
            return;
        };
        self.stats.heard += 1;
        let (base, next) = (sending.base, sending.next);
        // A single rail that is late or lost says nothing about the others.
        let part = 2 * self.networks.all().count().max(1) as u32;
        let heavy = gaps.of >= LOSSY_OF
            && gaps.missing as u32 * part >= gaps.of as u32 * (part - 1)
            && sending.lost_anew(gaps);
        for number in gaps.iter().filter(|number| (base..next).contains(number)) {
            let Some(held) = sending.chunks.get_mut(&number) else {
                continue;
            };
            if let Some(network) = held.network.filter(|_| held.repair.is_none()) {
                self.networks.lost(network);
            }
            sending.idle_tails = 0;
            match held.ask(now, from, hold_ns, all_from) {
                None => continue,
                Some(Again::All) => sending.repairs.add_for_all(number),
                Some(_) if all_only => sending.repairs.add_for_all(number),
                Some(Again::Alone) => sending.send_to(now, number, from),
                Some(Again::Pieces) => {
                    if !whole_only {
                        sending.needs_pieces(now, from);
                    }
                    sending.send_to(now, number, from);
                }
            }
        }
        if heavy {
            sending.lossy = true;
            sending.lossy_at = now;
            if root == self.cfg.me && self.pace.slow(now, self.trip.ns()) {
                self.stats.slowed += 1;
            }
        }
    }

    /// The end of the chunks of a root that all members have.
    fn settled(&self, root: u16) -> u64 {
        let Some(sending) = self.sending.get(&root) else {
            return 0;
        };
        let slowest = match self.cfg.errs(GroupMutation::FreeEarly) {
            true => sending.acked.fastest(),
            false => sending.acked.slowest(),
        };
        let here = match root == self.cfg.me {
            true => u64::MAX,
            false => self.receiving.next_of(root),
        };
        let base = slowest.unwrap_or(sending.next).min(here);
        base.min(sending.next).max(sending.base)
    }

    /// Frees the chunks that all members have, and ends their operations.
    pub(super) fn settle(&mut self, now: u64, root: u16) {
        let (me, base) = (self.cfg.me, self.settled(root));
        let keeps = self.cfg.errs(GroupMutation::KeepCopies);
        let Some(sending) = self.sending.get_mut(&root) else {
            return;
        };
        if base == sending.next {
            sending.remind_at = u64::MAX;
        }
        if base == sending.base {
            return;
        }
        sending.base = base;
        let rest = sending.chunks.split_off(&base);
        let freed = core::mem::replace(&mut sending.chunks, rest);
        let copies = freed.values().filter(|held| held.bytes == Bytes::Copy);
        let bytes: u64 = copies.map(|held| held.chunk.len as u64).sum();
        let mut ended: Vec<(u32, End)> = sending.drop_parity().into_iter().collect();
        let over = sending
            .left
            .iter()
            .take_while(|left| left.end <= base)
            .count();
        for left in sending.left.drain(..over) {
            ended.push((left.handle, left.dead.map_or(End::Well, End::Dead)));
        }
        let ended = ended.into_iter();
        let ended = ended.map(|(handle, end)| GroupEvent::Done { handle, end });
        self.events.extend(ended);
        if bytes > 0 && !keeps {
            let next = base;
            self.events.push_back(GroupEvent::Forget { root, next });
        }
        if root != me {
            self.kept_bytes -= bytes;
            self.owe_ack(now, root);
        }
    }

    /// Sends probes, and then asks members that report receiving no multicast whether the probes
    /// arrived.
    pub(super) fn question_unreachable(&mut self, now: u64) {
        let due =
            |s: &Sending| s.question_at <= now && s.unreachable.values().any(|d| !d.is_over());
        if self.sending.values().any(due) {
            self.probe();
        }
        for (&root, sending) in &mut self.sending {
            if sending.question_at > now {
                continue;
            }
            sending.question_at = u64::MAX;
            let next = sending.next;
            let doubted = sending
                .unreachable
                .iter_mut()
                .filter(|(_, doubt)| !doubt.is_over());
            for (&member, doubt) in doubted.take(ALONE_MAX) {
                doubt.ask(now);
                sending.question_at = now + ROUND_NS;
                let asked = Asked::of(&[member]);
                let tail = Frame::Tail { root, next, asked };
                self.frames.push_back((To::Member(member), tail));
            }
        }
    }

    /// Sends TAILs to members that have not acknowledged.
    pub(super) fn remind(&mut self, now: u64) {
        if self.cfg.errs(GroupMutation::NeverRemind) {
            self.sending
                .values_mut()
                .for_each(|s| s.remind_at = u64::MAX);
        }
        for (&root, sending) in &mut self.sending {
            if sending.remind_at > now {
                continue;
            }
            let mut lagging: Vec<u16> = sending.lagging().collect();
            sending.pause_ns = (2 * sending.pause_ns).clamp(1, REMIND_PAUSE_MAX_NS);
            sending.remind_at = now + sending.pause_ns;
            let (next, tries) = (sending.next, sending.reminded);
            if lagging.is_empty() {
                continue; // a co-root that is missing chunks itself
            }
            sending.reminded += 1;
            sending.reminded_at = Some(now);
            sending.idle_tails = sending.idle_tails.saturating_add(1);
            let alone = lagging.len() == 1 || self.cfg.scheme.alone;
            if !alone && tries % ALONE_EVERY != ALONE_EVERY - 1 {
                let network = self.networks.pick(None);
                let asked = Asked::of(&lagging);
                if lagging.len() > ASKED_MAX {
                    // Many members spread their answers over time, so the answers give no
                    // round-trip sample.
                    sending.reminded += 1;
                }
                let tail = Frame::Tail { root, next, asked };
                self.frames.push_back((To::All { network }, tail));
                continue;
            }
            let turn = tries as usize * ALONE_MAX % lagging.len();
            lagging.rotate_left(turn);
            for member in lagging.into_iter().take(ALONE_MAX) {
                let asked = Asked::of(&[member]);
                let tail = Frame::Tail { root, next, asked };
                self.frames.push_back((To::Member(member), tail));
            }
        }
    }
}
