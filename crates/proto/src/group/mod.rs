//! Reliable broadcast to a group by multicast: one member's state.
//!
//! All members of a group call broadcasts in one order, so each broadcast has a number that all
//! know without being told. Its root cuts it into chunks and multicasts each once; chunks have
//! numbers of their own, one sequence per root, which is what losses and acknowledgements are told
//! by. Members acknowledge to a *collector*: the root, or one of its *co-roots*, which repairs
//! losses in its part of the group and tells the root how far all of the part are (Liu, Mamidala,
//! Panda: broadcast by InfiniBand multicast, co-root design). Losses are found by the receivers,
//! which ask with a delay that keeps a large group from asking at once (RFC 5740, sections 5.3 and
//! 5.5).
//!
//! Like the rest of the protocol it has no clock, no socket and no payload: packets and time come
//! in, packets, placements and events go out. Nothing that it sends needs to arrive.
//!
//! A packet that comes is admitted first ([`Group::admit`]); then its words are handled, and its
//! chunk is placed, copied and committed. After any call, packets and events are polled until
//! there are none, packets first: an operation may end with the packet that reads its memory last.
//! A dead member is not found out here; [`Group::awaited`] tells whose death would matter, and
//! [`Group::on_dead`] takes it.
//!
//! `recv` is the receiving side: chunks to their places; `ask` is what it says, acknowledgements
//! and requests. `send` is the root's side: chunks, windows, copies; `repair` is what a collector
//! does for its part; `death` takes members out. `parts` says who collects for whom, `acked` how
//! far they are, `order` which broadcasts have begun and where the group is left, `carried` whether
//! multicast arrives, `lanes` which rails carry it, `pace` how far apart chunks leave, `delay`
//! draws the delays.

mod acked;
mod ask;
mod carried;
mod config;
mod death;
mod delay;
mod lanes;
mod mutation;
mod order;
mod pace;
mod parts;
mod recv;
mod repair;
mod send;
mod types;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use carried::{Carried, Trip};
use delay::Draw;
use lanes::Lanes;
use marline_wire::GroupHead;
use order::Order;
use pace::Pace;
use parts::Parts;
use recv::Receiving;
use send::{Post, Sending};

pub use config::{GroupConfig, Identity, Scheme};
pub use marline_wire::{AckFlags, Asked, Gaps, ASKED_MAX, PARITY_MAX};
pub use mutation::GroupMutation;
pub use order::AHEAD;
pub use types::{
    Chunk, Content, End, GroupEvent, GroupHeld, GroupStats, Heard, Packet, Place, Rebuild, To, Word,
};

/// A broadcast that was posted and has not begun.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    root: u16,
    handle: u32,
    len: u64,
}

/// One member of a group.
#[derive(Debug)]
pub struct Group {
    cfg: GroupConfig,
    who: Identity,
    parts: Parts,
    draw: Draw,
    order: Order,
    /// Posted while too many broadcasts were under way, oldest first.
    waiting: VecDeque<Waiting>,
    receiving: Receiving,
    /// What this member sends as root, and keeps as co-root, by root.
    sending: BTreeMap<u16, Sending>,
    /// Bytes kept of other roots' chunks.
    kept_bytes: u64,
    lanes: Lanes,
    pace: Pace,
    carried: Carried,
    trip: Trip,
    dead: Vec<u16>,
    words: VecDeque<(To, Word)>,
    events: VecDeque<GroupEvent>,
    stats: GroupStats,
}

impl Group {
    /// A member of a new group, in which nothing was broadcast.
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
            lanes: Lanes::new(cfg.lanes),
            pace: Pace::new(cfg.chunk_ns),
            carried: Carried::default(),
            trip: Trip::new(cfg.round_trip_ns),
            dead: Vec::new(),
            words: VecDeque::new(),
            events: VecDeque::new(),
            stats: GroupStats::default(),
            cfg,
            who,
        }
    }

    fn members(&self) -> u16 {
        self.who.members.len() as u16
    }

    /// Posts the next broadcast of the group: `len` bytes from the memory of operation `handle` if
    /// this member is the `root`, else into it.
    pub fn post(&mut self, now_ns: u64, root: u16, handle: u32, len: u64) {
        self.waiting.push_back(Waiting { root, handle, len });
        self.begin(now_ns);
    }

    /// Begins what was posted, as far as it may.
    fn begin(&mut self, now: u64) {
        while let Some(&Waiting { root, handle, len }) = self.waiting.front() {
            let Some(broadcast) = self.order.begin() else {
                return;
            };
            self.waiting.pop_front();
            let late = self.cfg.errs(GroupMutation::LeaveLate) && self.cfg.me == 1;
            if self.order.has_left(broadcast.saturating_sub(late as u64)) {
                self.end(broadcast, handle, End::NotCarried);
            } else if let Some(dead) = self.order.broken(broadcast) {
                self.end(broadcast, handle, End::Dead(dead));
            } else if root == self.cfg.me {
                self.post_own(now, broadcast, handle, len);
            } else {
                self.post_receive(now, (broadcast, root), handle, len);
            }
        }
    }

    /// An operation ends, and with it, here, a broadcast.
    fn end(&mut self, broadcast: u64, handle: u32, end: End) {
        self.order.over(broadcast);
        self.events.push_back(GroupEvent::Done { handle, end });
    }

    fn post_own(&mut self, now: u64, broadcast: u64, handle: u32, len: u64) {
        let me = self.cfg.me;
        self.order.over(broadcast);
        let dead = self.dead.last().copied();
        let deaf = self.carried.is_deaf(now);
        let own = self.sending_of(me);
        let leaves = deaf || own.hears_of_deaf();
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

    /// A broadcast says that the group is to be left.
    fn leave(&mut self, broadcast: u64) {
        if let Some(from) = self.order.leaves(broadcast) {
            self.events.push_back(GroupEvent::NotCarried { from });
        }
    }

    /// Whether a packet names this group.
    pub fn is_for(&self, head: &GroupHead) -> bool {
        head.group == self.who.id || self.cfg.errs(GroupMutation::MixGroups)
    }

    /// A packet came: whether it is from a member of this group, in this life of both. `None`:
    /// nothing of it counts.
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
            self.carried.hear(head.lane);
        }
        let lane = multicast.then_some(head.lane);
        Some(Heard { from, lane })
    }

    /// What another member said.
    pub fn handle_word(&mut self, now_ns: u64, heard: Heard, word: &Word) {
        match *word {
            Word::Ack { root, next, flags } => self.on_ack(now_ns, heard, (root, next), flags),
            Word::Nack { root, gaps } => self.on_nack(now_ns, heard.from, root, &gaps),
            Word::Tail { root, next, asked } => {
                self.on_tail(now_ns, heard.from, (root, next), asked.members());
            }
            Word::Probe => {}
        }
        self.begin(now_ns);
    }

    /// A member wrote an acknowledgement (see [`Content::Mark`]): what stands in its place for a
    /// root. What was handled before does no harm.
    pub fn handle_mark(&mut self, now_ns: u64, from: u16, root: u16, value: u64) {
        let heard = Heard { from, lane: None };
        let flags = AckFlags::of(value as u8 & 3);
        self.on_ack(now_ns, heard, (root, value >> 2), flags);
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        let waits = |(_, word): &(To, Word)| !matches!(word, Word::Ack { .. });
        if let Some(at) = self.words.iter().position(waits) {
            return self.words_packet(at);
        }
        match self.next_content(now_ns) {
            Some((to, content)) => {
                let words = self.riders(now_ns, to, &content);
                let content = Some(content);
                Some(Packet { to, words, content })
            }
            None => self.words_packet(0),
        }
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// When [`Group::handle_timeouts`] or [`Group::poll_transmit`] has something to do next.
    pub fn next_deadline(&self) -> Option<u64> {
        let sending = self.sending.values().filter_map(Sending::deadline).min();
        let window = self.cfg.scheme.window;
        let ready = self.sending.values().any(|s| s.has_work(window));
        let paced = ready.then(|| self.pace.next_at());
        let all = [sending, self.receiving.deadline(), paced];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        self.ask_and_tell(now_ns);
        self.remind(now_ns);
    }

    /// Multicasts a PROBE on each of the group's rails; whom it reaches counts them in
    /// [`Group::heard_lanes`].
    pub fn probe(&mut self) {
        let lanes: Vec<u8> = self.lanes.all().collect();
        let probes = lanes.into_iter().map(|lane| To::All { lane });
        self.words.extend(probes.map(|to| (to, Word::Probe)));
    }

    /// Rails on which a multicast of another member was heard, as bits.
    pub fn heard_lanes(&self) -> u8 {
        self.carried.lanes()
    }

    /// From now on multicast leaves on these of the group's rails only (bits); 0 changes nothing.
    pub fn set_lanes(&mut self, mask: u8) {
        self.lanes.only(mask);
    }

    /// Counters.
    pub fn stats(&self) -> &GroupStats {
        &self.stats
    }

    /// Members whose word something here waits for: roots of posted receives, and members that
    /// have not acknowledged.
    pub fn awaited(&self) -> Vec<u16> {
        let mut members: Vec<u16> = self.receiving.awaited_roots().collect();
        members.extend(self.sending.values().flat_map(Sending::lagging));
        members.sort_unstable();
        members.dedup();
        members
    }

    /// What is kept: all zero once every operation has ended and every member has acknowledged.
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

    /// Bytes of this state, about, without payload.
    pub fn state_bytes(&self) -> usize {
        let sending: usize = self.sending.values().map(Sending::heap_bytes).sum();
        let words = self.words.capacity() * size_of::<(To, Word)>();
        let waiting = self.waiting.capacity() * size_of::<Waiting>();
        size_of::<Group>() + sending + self.receiving.heap_bytes() + words + waiting
    }
}

#[cfg(test)]
mod tests;
