//! The group's API: posts, packets in and out, events, deadlines.

use super::collectors::Parts;
use super::config::{GroupConfig, Identity};
use super::delay::Draw;
use super::incoming::Receiving;
use super::mutation::GroupMutation;
use super::networks::Networks;
use super::order::Order;
use super::outgoing::{Post, Sending};
use super::pace::Pace;
use super::reachability::{Reachability, Trip};
use super::replay::Replays;
use super::state::{Group, Waiting};
use super::types::{End, Frame, GroupEvent, GroupHeld, GroupStats, Heard, Packet, To};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use marline_wire::{AckFlags, GroupHead};

impl Group {
    /// A member of a new group, without any broadcasts.
    pub fn new(cfg: GroupConfig, who: Identity) -> Group {
        let members = who.members.len().min(u16::MAX as usize) as u16;
        Group {
            parts: Parts::new(members, cfg.scheme.co_roots),
            draw: Draw::new(cfg.seed, members),
            order: Order::new(),
            waiting: VecDeque::new(),
            receiving: Receiving::default(),
            sending: BTreeMap::new(),
            kept_bytes: 0,
            networks: Networks::new(cfg.networks, cfg.chunks_per_turn),
            pace: Pace::new(cfg.chunk_ns),
            reachability: Reachability::default(),
            trip: Trip::new(cfg.round_trip_ns),
            dead: Vec::new(),
            replays: Replays::default(),
            retired: false,
            frames: VecDeque::new(),
            passed_acks: false,
            events: VecDeque::new(),
            stats: GroupStats::default(),
            cfg,
            who,
        }
    }

    /// Posts the group's next broadcast: `len` bytes from the memory of operation `handle` if this
    /// member is the `root`, otherwise into it.
    pub fn post(&mut self, now_ns: u64, root: u16, handle: u32, len: u64) {
        self.waiting.push_back(Waiting { root, handle, len });
        self.begin(now_ns);
        self.acknowledge(now_ns);
    }

    /// Begins posted broadcasts as far as the order allows.
    pub(super) fn begin(&mut self, now: u64) {
        while let Some(&Waiting { root, handle, len }) = self.waiting.front() {
            let Some(broadcast) = self.order.begin() else {
                return;
            };
            self.waiting.pop_front();
            let late = self.cfg.errs(GroupMutation::LeaveLate) && self.cfg.me == 1;
            if self.order.has_left(broadcast.saturating_sub(late as u64)) {
                self.refuse(now, broadcast, handle, End::NotCarried);
            } else if root == self.cfg.me {
                // Post it even if others have abandoned the group: members that have not would wait
                // for it.
                self.post_own(now, broadcast, handle, len);
            } else if let Some(dead) = self.order.broken(broadcast) {
                self.refuse(now, broadcast, handle, End::Dead(dead));
            } else {
                self.post_receive(now, (broadcast, root), handle, len);
            }
        }
    }

    fn post_own(&mut self, now: u64, broadcast: u64, handle: u32, len: u64) {
        let me = self.cfg.me;
        self.order.over(broadcast);
        let dead = self.dead.last().copied();
        let unreachable = self.reachability.is_surely_unreachable(now);
        let own = self.sending_of(me);
        let leaves = unreachable || own.knows_of_unreachable();
        if len == 0 || own.is_alone() {
            let end = dead.map_or(End::Well, End::Dead);
            return self.events.push_back(GroupEvent::Done { handle, end });
        }
        let copies = len <= self.cfg.copy_max;
        self.sending_of(me).post(Post {
            broadcast,
            handle,
            len,
            cut: 0,
            copies,
            leaves,
            dead,
        });
        if leaves {
            self.leave(broadcast);
        }
    }

    /// Returns whether a packet names this group.
    pub fn is_for(&self, head: &GroupHead) -> bool {
        head.group == self.who.id || self.cfg.errs(GroupMutation::MixGroups)
    }

    /// Checks that a packet is from a member of this group, with the right epoch and token. `None`:
    /// ignore the packet.
    pub fn admit(&mut self, head: &GroupHead) -> Option<Heard> {
        let from = head.member;
        let member = self.who.members.get(from as usize);
        let known = member == Some(&(head.src_id, head.src_epoch)) && head.token == self.who.token;
        let trusts =
            self.cfg.errs(GroupMutation::AcceptStranger) || self.cfg.errs(GroupMutation::MixGroups);
        let known = known || trusts && from < self.members();
        if !known || !self.is_for(head) || from == self.cfg.me {
            self.stats.strangers += 1;
            return None;
        }
        if self.dead.contains(&from) {
            return None;
        }
        let multicast = head.flags & GroupHead::FLAG_MULTICAST != 0;
        if multicast {
            self.reachability.hear(head.network);
        }
        let network = multicast.then_some(head.network);
        Some(Heard { from, network })
    }

    /// Handles a frame of another member.
    pub fn handle_frame(&mut self, now_ns: u64, heard: Heard, frame: &Frame) {
        match *frame {
            Frame::Ack { root, next, flags } => self.on_ack(now_ns, heard, (root, next), flags),
            Frame::Nack { root, gaps } => self.on_nack(now_ns, heard.from, root, &gaps),
            Frame::Tail { root, next, asked } => {
                self.on_tail(now_ns, heard.from, (root, next), asked.members());
            }
            Frame::Probe if heard.network.is_some() => self.hear_probe(heard.from),
            Frame::Probe => {}
        }
        self.begin(now_ns);
    }

    /// Handles the value of a written acknowledgement (see [`Content::Mark`]) of a member for a
    /// root. Handling a value twice is harmless.
    pub fn handle_mark(&mut self, now_ns: u64, from: u16, root: u16, value: u64) {
        let heard = Heard {
            from,
            network: None,
        };
        let flags = AckFlags::of(value as u8 & 3);
        self.on_ack(now_ns, heard, (root, value >> 2), flags);
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        // Acknowledgements wait for a chunk that takes them along, but not for further ones: chunks
        // for other members may follow each other without end.
        let passed = core::mem::take(&mut self.passed_acks);
        let leaves = |(_, frame): &(To, Frame)| passed || !matches!(frame, Frame::Ack { .. });
        if let Some(at) = self.frames.iter().position(leaves) {
            return self.frames_packet(at);
        }
        match self.next_content(now_ns) {
            Some((to, content)) => {
                let frames = self.piggybacked(now_ns, to, &content);
                self.passed_acks = !self.frames.is_empty();
                let content = Some(content);
                Some(Packet {
                    to,
                    frames,
                    content,
                })
            }
            None => self.frames_packet(0),
        }
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// Time of the next call of [`Group::handle_timeouts`] or [`Group::poll_transmit`].
    pub fn next_deadline(&self) -> Option<u64> {
        let sending = self.sending.values().filter_map(Sending::deadline).min();
        let window = self.cfg.scheme.window;
        let ready = self.sending.values().any(|s| s.has_work(window));
        let paced = ready.then(|| self.pace.next_at());
        let all = [sending, self.receiving.deadline(), paced];
        all.into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        self.ask_and_ack(now_ns);
        self.remind(now_ns);
        self.question_unreachable(now_ns);
    }

    /// Multicasts a PROBE on each of the group's rails. The members that receive it record the rail
    /// in [`Group::heard_networks`].
    pub fn probe(&mut self) {
        let networks: Vec<u8> = self.networks.all().collect();
        let probes = networks.into_iter().map(|network| To::All { network });
        self.frames.extend(probes.map(|to| (to, Frame::Probe)));
    }

    /// Bit mask of rails that delivered multicast of other members.
    pub fn heard_networks(&self) -> u8 {
        self.reachability.networks()
    }

    /// Restricts this member's multicast to these of the group's rails (bit mask); 0 changes
    /// nothing.
    pub fn set_networks(&mut self, mask: u8) {
        self.networks.only(mask);
    }

    /// Bytes that a root may have in flight.
    pub fn window_bytes(&self) -> u64 {
        self.cfg.scheme.window as u64 * self.cfg.chunk as u64
    }

    /// Counters.
    pub fn stats(&self) -> &GroupStats {
        &self.stats
    }

    /// Members for which this one waits: roots of posted receives, and members that have not
    /// acknowledged.
    pub fn awaited(&self) -> Vec<u16> {
        let mut members: Vec<u16> = self.receiving.awaited_roots().collect();
        members.extend(self.sending.values().flat_map(Sending::lagging));
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Resources held: zero once every operation has ended and every member has acknowledged.
    pub fn held(&self) -> GroupHeld {
        let own = self.sending.get(&self.cfg.me);
        let sending = own.map_or(0, Sending::operations) as u64;
        let receiving = self.receiving.operations() as u64;
        GroupHeld {
            operations: sending + receiving + self.waiting.len() as u64,
            early_bytes: self.receiving.early_bytes(),
            kept_bytes: self.kept_bytes,
            copied_bytes: own.map_or(0, Sending::copied_bytes),
            chunks: self.sending.values().map(Sending::held).sum(),
        }
    }

    /// Approximate bytes of this state, without payload.
    pub fn state_bytes(&self) -> usize {
        let sending: usize = self.sending.values().map(Sending::heap_bytes).sum();
        let frames = self.frames.capacity() * size_of::<(To, Frame)>();
        let waiting = self.waiting.capacity() * size_of::<Waiting>();
        let all = sending + self.receiving.heap_bytes() + self.replays.heap_bytes();
        size_of::<Group>() + all + frames + waiting
    }
}
