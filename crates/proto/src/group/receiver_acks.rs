//! Frames of a receiver: acknowledgements and NACKs (requests for missing chunks).

use super::incoming::FromRoot;
use super::mutation::GroupMutation;
use super::reachability::{ANSWER_NS, STALL_NS};
use super::state::Group;
use super::types::{Content, Frame, Packet, To};
use alloc::vec::Vec;
use marline_wire::AckFlags;

/// Longest pause between repeated NACKs; pauses double up to it.
const NACK_PAUSE_MAX_NS: u64 = 10_000_000;
/// Number of NACKs of which one goes to the root: the collector may be missing the chunk too, or be
/// dead.
const TRIES_PER_ROOT: u32 = 3;
/// Without NACKs, members delay an acknowledgement by this many round trips so that it covers more.
const ACK_DELAY_TRIPS: u64 = 16;
/// Half round trips by which the request for a chunk is delayed if the chunk may still come by
/// another rail than later chunks. Larger differences between rails count as losses.
const LATE_TRIPS: u64 = 4;
/// Approximate spacing of acknowledgements that are requested from many members at once: the time
/// that a collector takes for one.
const ACK_SPACING_NS: u64 = 1_000;
/// Most frames in a packet.
const PIGGYBACK_FRAMES_MAX: usize = 4;
/// Most bytes of acknowledgements piggybacked on a full chunk; shorter chunks leave room for more.
/// Packets reserve this much beside their heads and a chunk.
pub const PIGGYBACK_LEN: usize = 32;
/// Bytes of one acknowledgement.
const ACK_LEN: usize = 16;

impl Group {
    /// Sets the time of the next NACK for a root. `progress`: the first missing chunk just arrived,
    /// so the chunks missing after it have not been requested recently.
    pub(super) fn watch_gaps(&mut self, now: u64, root: u16, progress: bool) {
        let half = self.trip.ns() / 2;
        // A parity may be in flight.
        let parity = if self.cfg.scheme.parity > 0 { half } else { 0 };
        let networks = self.reachability.networks();
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        if !from.has_gaps() {
            from.nack_at = u64::MAX;
        } else if self.cfg.scheme.nacks && (from.nack_at == u64::MAX || progress) {
            // The chunk itself may be in flight: rails lag by the length of their queues.
            let late = if from.may_come(networks) {
                LATE_TRIPS * half
            } else {
                0
            };
            from.nack_at = now + parity + late + self.draw.delay_ns(half);
        }
    }

    /// A random delay so that the members of a part do not acknowledge at once.
    fn spread_ns(&mut self) -> u64 {
        self.draw.next() % (self.parts.size() as u64 * ACK_SPACING_NS)
    }

    /// Longest delay, beyond a round trip, of acknowledgements requested from a part.
    pub(super) fn spread_max_ns(&self) -> u64 {
        self.parts.size() as u64 * ACK_SPACING_NS
    }

    /// Sets the time to acknowledge a root's chunks.
    pub(super) fn owe_ack(&mut self, now: u64, root: u16) {
        let reached = self.reached(root);
        let (scheme, trip_ns) = (self.cfg.scheme, self.trip.ns());
        let Some(from) = self.receiving.roots.get(&root) else {
            return;
        };
        let wanted = from.acked < from.wanted && from.wanted <= reached;
        let spread = if wanted { self.spread_ns() } else { 0 };
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        // Members acknowledge at different chunks.
        let quarter = (scheme.window as u64 / 4).max(1);
        let enough = quarter + self.cfg.me as u64 % quarter;
        let all = from.next >= from.acked + scheme.window as u64; // the root waits
        let due = (all || from.ended >= scheme.ack_every) && reached > from.acked;
        if due || reached >= from.acked + enough {
            from.ack_at = now;
        } else if wanted {
            from.ack_at = from.ack_at.min(now + spread);
        } else if !scheme.nacks && reached > from.acked {
            from.ack_at = from.ack_at.min(now + ACK_DELAY_TRIPS * trip_ns);
        }
    }

    /// The chunk up to which this member acknowledges: what it has received and, if it collects,
    /// what all members of its part have. Chunks of broadcasts that are not posted yet are not
    /// acknowledged if the early buffers could not take a further window: the root then stops, and
    /// nothing has to be sent twice.
    fn reached(&self, root: u16) -> u64 {
        let part = self.sending.get(&root).map_or(u64::MAX, |kept| kept.base());
        let next = self.receiving.next_of(root);
        let room = self.early_room(0) / self.cfg.chunk as u64;
        let short = (self.cfg.scheme.window as u64).saturating_sub(room);
        let may = match short {
            0 => next,
            _ => next
                .saturating_sub(short)
                .max(self.receiving.first_early_of(root)),
        };
        let acked = self.receiving.roots.get(&root).map_or(0, |from| from.acked);
        next.min(part).min(may).max(acked)
    }

    /// Acknowledges chunks to roots that wait, after room in the early buffers was freed.
    pub(super) fn ack_freed_room(&mut self, now: u64) {
        let scheme = self.cfg.scheme;
        let waits = |from: &FromRoot| {
            let all = from.next >= from.acked + scheme.window as u64;
            all || from.acked < from.wanted || from.ended >= scheme.ack_every
        };
        let waiting = self.receiving.roots.iter().filter(|(_, from)| waits(from));
        let waiting: Vec<u16> = waiting.map(|(&root, _)| root).collect();
        waiting.into_iter().for_each(|root| self.owe_ack(now, root));
    }

    /// The flags of an acknowledgement.
    fn ack_flags(&mut self, now: u64, root: u16) -> AckFlags {
        let from = self.receiving.roots.get(&root);
        let unreachable = from.is_some_and(|from| from.alone.is_unreachable(now));
        let unreachable = (unreachable || self.reachability.alone.is_unreachable(now))
            && !self.cfg.errs(GroupMutation::HideUnreachable);
        let kept = self.sending.get_mut(&root);
        let (unreachable_part, lossy) = kept.map_or((false, false), |kept| kept.take_news());
        AckFlags {
            unreachable: unreachable || unreachable_part,
            lossy,
        }
    }

    /// Handles a TAIL, in which a collector says how far this member should be, and asks how far it
    /// is.
    pub(super) fn on_tail(&mut self, now: u64, by: u16, (root, next): (u16, u64), asked: &[u16]) {
        let (me, window) = (self.cfg.me, self.cfg.scheme.window as u64);
        let collects = root < self.members() && (by == root || self.parts.collects(root, by));
        if !collects || root == me {
            self.stats.nonsense += 1;
            return;
        }
        let alone = asked.contains(&me);
        let mine = alone || asked.is_empty() && self.collector(root) == by;
        let over = self.retired && !self.cfg.errs(GroupMutation::RetireSilent);
        if over || self.dead.contains(&root) {
            // This member wants nothing more from this root.
            if mine {
                let flags = AckFlags::default();
                let ack = Frame::Ack { root, next, flags };
                self.frames.push_back((To::Member(by), ack));
            }
            return;
        }
        let (spread, delay) = (self.spread_ns(), self.draw.delay_ns(self.trip.ns() / 2));
        let unreachable_part = self
            .sending
            .get(&root)
            .is_some_and(|kept| kept.knows_of_unreachable());
        let from = self.receiving.roots.entry(root).or_default();
        if next > from.next + window {
            self.stats.nonsense += 1;
            return;
        }
        from.high = from.high.max(next);
        if from.has_gaps() && from.nack_at == u64::MAX {
            from.nack_at = now + delay;
        }
        if alone {
            self.reachability.asked(now);
            let reported = self.reachability.alone.was_reported() || from.alone.was_reported();
            let unreachable = reported || unreachable_part;
            from.ack_at = if unreachable { now + ANSWER_NS } else { now };
            from.ack_to = Some(by);
            from.orphaned |= by == root;
        } else if mine {
            from.ack_at = from.ack_at.min(now + spread);
        }
    }

    /// Sends the acknowledgements and NACKs that are due.
    pub(super) fn ask_and_ack(&mut self, now: u64) {
        let due = |from: &FromRoot| from.ack_at.min(from.nack_at) <= now;
        let roots = self.receiving.roots.iter().filter(|(_, from)| due(from));
        let roots: Vec<u16> = roots.map(|(&root, _)| root).collect();
        for root in roots {
            self.send_ack(now, root);
            self.ask_for_gaps(now, root);
        }
    }

    /// Sends the acknowledgements that are due. Call this after each batch of packets: a root may
    /// be waiting for them while [`Group::handle_timeouts`] waits for more packets.
    pub fn acknowledge(&mut self, now_ns: u64) {
        let due = |(_, from): &(&u16, &FromRoot)| from.ack_at <= now_ns;
        while let Some((&root, _)) = self.receiving.roots.iter().find(due) {
            self.send_ack(now_ns, root);
        }
    }

    /// Acknowledges a root's chunks if that is due.
    fn send_ack(&mut self, now: u64, root: u16) {
        let (reached, collector) = (self.reached(root), self.collector(root));
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        if from.ack_at > now {
            return;
        }
        from.ack_at = u64::MAX;
        (from.acked, from.ended) = (reached, 0);
        let to = from.ack_to.take().unwrap_or(collector);
        let flags = self.ack_flags(now, root);
        let next = reached;
        let ack = Frame::Ack { root, next, flags };
        self.frames.push_back((To::Member(to), ack));
    }

    /// Sends a NACK for a root's missing chunks if that is due.
    fn ask_for_gaps(&mut self, now: u64, root: u16) {
        let collector = self.collector(root);
        let once = self.cfg.errs(GroupMutation::AskOnce);
        let pause = self.trip.ns() + self.draw.delay_ns(self.trip.ns() / 2);
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        if from.nack_at > now {
            return;
        }
        if from.tries == 0 {
            from.stalls_at = now + STALL_NS;
        } else if now >= from.stalls_at {
            from.alone.stalls();
            if from.alone.turns_unreachable(now) {
                from.ack_at = now;
            }
        }
        let gaps = from.gaps();
        let to = match from.tries % TRIES_PER_ROOT {
            0 if from.tries > 0 => root,
            _ => collector,
        };
        from.nack_at = now + (pause << from.tries.min(16)).min(NACK_PAUSE_MAX_NS);
        let first = gaps.first();
        // Answers to repeated NACKs give no round-trip sample.
        from.asked = first.filter(|_| from.tries == 0).map(|first| (first, now));
        from.tries += 1;
        if first.is_some() && (!once || from.tries == 1) {
            self.frames
                .push_back((To::Member(to), Frame::Nack { root, gaps }));
        }
    }

    /// The member that receives acknowledgements from here: the collector, or the root if the
    /// collector is dead.
    fn collector(&self, root: u16) -> u16 {
        let collector = self.parts.collector(root, self.cfg.me);
        let orphaned = self.receiving.roots.get(&root).is_some_and(|r| r.orphaned);
        match orphaned || self.dead.contains(&collector) {
            true => root,
            false => collector,
        }
    }

    /// The packet for frame number `at`, with further frames for the same receiver.
    pub(super) fn frames_packet(&mut self, at: usize) -> Option<Packet> {
        let (to, frame) = self.frames.remove(at)?;
        let mut packet = Packet {
            to,
            frames: Vec::new(),
            content: None,
        };
        let mark = self.cfg.scheme.marks && matches!(to, To::Member(_));
        match frame {
            Frame::Ack { root, next, flags } if mark => {
                let value = next << 2 | flags.bits() as u64;
                packet.content = Some(Content::Mark { root, value });
                self.stats.acks += 1;
            }
            frame => {
                self.count(&frame);
                packet.frames.push(frame);
                self.more_words(&mut packet);
            }
        }
        Some(packet)
    }

    /// Adds waiting frames for the same receiver to a packet.
    fn more_words(&mut self, packet: &mut Packet) {
        let marks = self.cfg.scheme.marks;
        while packet.frames.len() < PIGGYBACK_FRAMES_MAX {
            let fits = |(to, frame): &(To, Frame)| {
                *to == packet.to && !(marks && matches!(frame, Frame::Ack { .. }))
            };
            let Some(at) = self.frames.iter().position(fits) else {
                return;
            };
            if let Some((_, frame)) = self.frames.remove(at) {
                self.count(&frame);
                packet.frames.push(frame);
            }
        }
    }

    fn count(&mut self, frame: &Frame) {
        match frame {
            Frame::Ack { .. } => self.stats.acks += 1,
            Frame::Nack { .. } => self.stats.nacks += 1,
            Frame::Tail { .. } => self.stats.tails += 1,
            Frame::Probe => {}
        }
    }

    /// Acknowledgements to piggyback on a chunk, as many as fit: those for the chunk's receivers
    /// and, with the first chunk of a broadcast, those that are not due yet. Members ignore
    /// acknowledgements for others.
    pub(super) fn piggybacked(&mut self, now: u64, to: To, content: &Content) -> Vec<Frame> {
        let mut frames = Vec::new();
        let hears = |receiver: &To| matches!(to, To::All { .. }) || *receiver == to;
        let spare = match content.is_piece() {
            true => 0, // a piece fits any path with no more than this
            false => self.cfg.chunk.saturating_sub(content.len()) as usize,
        };
        let room = PIGGYBACK_LEN + spare;
        let most = PIGGYBACK_FRAMES_MAX.min(room / ACK_LEN);
        while frames.len() < most {
            // Only acknowledgements are queued here, since other frames have left before.
            let Some(at) = self.frames.iter().position(|(receiver, _)| hears(receiver)) else {
                break;
            };
            frames.extend(self.frames.remove(at).map(|(_, frame)| frame));
        }
        let begins = matches!(content, Content::Own { chunk, .. } if chunk.offset == 0);
        if begins && matches!(to, To::All { .. }) {
            self.take_owed(now, None, (&mut frames, most));
        }
        self.stats.acks += frames.len() as u64;
        self.stats.acks_piggybacked += frames.len() as u64;
        frames
    }

    /// An acknowledgement for a member, to piggyback on another packet to it.
    pub fn piggyback(&mut self, now_ns: u64, member: u16) -> Option<Frame> {
        let mut frames = Vec::new();
        self.take_owed(now_ns, Some(member), (&mut frames, 1));
        let frame = frames.pop();
        self.stats.acks += frame.is_some() as u64;
        self.stats.acks_piggybacked += frame.is_some() as u64;
        frame
    }

    /// Collects acknowledgements that are owed to a member (`None`: to any), up to `most` frames.
    fn take_owed(
        &mut self,
        now: u64,
        member: Option<u16>,
        (frames, most): (&mut Vec<Frame>, usize),
    ) {
        let roots: Vec<u16> = self.receiving.roots.keys().copied().collect();
        for root in roots {
            let full = frames.len() >= most;
            let next = self.reached(root);
            let acked = self.receiving.roots.get(&root).map_or(next, |r| r.acked);
            let theirs = member.is_none_or(|member| member == self.collector(root));
            if full || acked >= next || !theirs {
                continue;
            }
            if let Some(from) = self.receiving.roots.get_mut(&root) {
                (from.acked, from.ended) = (next, 0);
                from.ack_at = if from.ack_to.is_some() {
                    from.ack_at
                } else {
                    u64::MAX
                };
            }
            let flags = self.ack_flags(now, root);
            frames.push(Frame::Ack { root, next, flags });
        }
    }
}
