//! The sending side: a root's chunks, and what a collector keeps and repairs for its part.

use super::{Chunk, Content, End, Group, GroupEvent, Packet, Place, To, Word, ASKED_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Members that have not acknowledged are asked with pauses that double up to this.
const REMIND_PAUSE_MAX_NS: u64 = 10_000_000;
/// Round trips after the last chunk before anyone is asked: acknowledgements may be under way.
const REMIND_AFTER_TRIPS: u64 = 2;

/// A broadcast of this member.
#[derive(Debug)]
struct Post {
    broadcast: u64,
    handle: u32,
    len: u64,
    /// Bytes that were cut into chunks.
    cut: u64,
    /// Bytes of a chunk.
    chunk: u32,
    /// This member died before it had all.
    dead: Option<u16>,
}

/// A chunk that not all have acknowledged.
#[derive(Debug)]
struct Held {
    chunk: Chunk,
    /// The operation whose memory it is in; none: a kept copy.
    handle: Option<u32>,
    /// Who was sent it last since it left, and when.
    repaired: Option<(To, u64)>,
}

/// An own broadcast that has left whole.
#[derive(Debug)]
struct Left {
    handle: u32,
    /// Number after that of its last chunk.
    end: u64,
    dead: Option<u16>,
}

/// The chunks of one root, as the root or a co-root has them.
#[derive(Debug)]
pub(super) struct Sending {
    posts: VecDeque<Post>,
    left: VecDeque<Left>,
    held: BTreeMap<u64, Held>,
    /// All chunks below were acknowledged by all.
    base: u64,
    /// Number of the next chunk.
    next: u64,
    /// How far each member is whose acknowledgements are collected here.
    acked: BTreeMap<u16, u64>,
    repairs: VecDeque<(To, u64)>,
    remind_at: u64,
    pause_ns: u64,
}

impl Sending {
    fn new(part: impl Iterator<Item = u16>) -> Sending {
        Sending {
            posts: VecDeque::new(),
            left: VecDeque::new(),
            held: BTreeMap::new(),
            base: 0,
            next: 0,
            acked: part.map(|member| (member, 0)).collect(),
            repairs: VecDeque::new(),
            remind_at: u64::MAX,
            pause_ns: 0,
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        (self.remind_at < u64::MAX).then_some(self.remind_at)
    }

    /// Members that lack something or have not said otherwise.
    pub(super) fn lagging(&self) -> impl Iterator<Item = u16> + '_ {
        let behind = self.acked.iter().filter(|(_, &next)| next < self.next);
        behind.map(|(&member, _)| member)
    }

    pub(super) fn post(&mut self, broadcast: u64, handle: u32, len: u64, chunk: u32) {
        self.posts.push_back(Post {
            broadcast,
            handle,
            len,
            cut: 0,
            chunk,
            dead: None,
        });
    }

    /// The next chunk that was never sent, if the window has room.
    fn cut(&mut self, root: u16, window: u64) -> Option<(u32, Chunk)> {
        let post = self.posts.front_mut()?;
        if self.next - self.base >= window {
            return None;
        }
        let len = (post.len - post.cut).min(post.chunk as u64);
        let chunk = Chunk {
            root,
            number: self.next,
            broadcast: post.broadcast,
            offset: post.cut,
            len: len as u32,
            total: post.len,
        };
        let handle = post.handle;
        post.cut += len;
        self.next += 1;
        let held = Held {
            chunk,
            handle: Some(handle),
            repaired: None,
        };
        self.held.insert(chunk.number, held);
        if post.cut == post.len {
            let left = Left {
                handle,
                end: self.next,
                dead: post.dead,
            };
            self.left.push_back(left);
            self.posts.pop_front();
        }
        Some((handle, chunk))
    }

    /// A member asks for a chunk: it alone gets it, or, when another one asked before, all do.
    fn ask(&mut self, now: u64, from: u16, number: u64, hold_ns: u64) {
        let Some(held) = self.held.get_mut(&number) else {
            return;
        };
        let recent = held.repaired.filter(|&(_, at)| now < at + hold_ns);
        let to = match recent {
            None => To::Member(from),
            Some((To::Member(before), _)) if before != from => To::All,
            // What it asks for is under way.
            Some(_) => return,
        };
        held.repaired = Some((to, now));
        self.repairs.push_back((to, number));
    }
}

impl Group {
    pub(super) fn sending_of(&mut self, root: u16) -> &mut Sending {
        let (parts, me, dead) = (&self.parts, self.cfg.me, &self.dead);
        self.sending.entry(root).or_insert_with(|| {
            let mut part: Vec<u16> = parts.of(root, me).collect();
            part.retain(|member| !dead.contains(member));
            Sending::new(part.into_iter())
        })
    }

    /// Own broadcasts that need no packets end at once: those without bytes, or without receivers.
    pub(super) fn pump(&mut self, now: u64) {
        let me = self.cfg.me;
        let Some(own) = self.sending.get_mut(&me) else {
            return;
        };
        let alone = own.acked.is_empty();
        let ends = |post: &&Post| alone || post.len == 0;
        while let Some(post) = own.posts.back().filter(ends) {
            let (handle, end) = (post.handle, post.dead.map_or(End::Well, End::Dead));
            own.posts.pop_back();
            self.events.push_back(GroupEvent::Done { handle, end });
        }
        self.settle(now, me);
    }

    /// The next chunk to send: repairs first.
    pub(super) fn next_chunk(&mut self, now: u64) -> Option<Packet> {
        for sending in self.sending.values_mut() {
            while let Some((to, number)) = sending.repairs.pop_front() {
                let Some(held) = sending.held.get(&number) else {
                    continue; // acknowledged meanwhile
                };
                match to {
                    To::All => self.stats.repairs_to_all += 1,
                    To::Member(_) => self.stats.repairs += 1,
                }
                let chunk = held.chunk;
                let content = match held.handle {
                    Some(handle) => Content::Own { handle, chunk },
                    None => Content::Kept(chunk),
                };
                return Some(Packet { to, content });
            }
        }
        let (me, window) = (self.cfg.me, self.cfg.scheme.window as u64);
        let own = self.sending.get_mut(&me)?;
        let (handle, chunk) = own.cut(me, window)?;
        own.pause_ns = REMIND_AFTER_TRIPS * self.cfg.round_trip_ns;
        own.remind_at = now + own.pause_ns;
        self.stats.chunks += 1;
        Some(Packet {
            to: To::All,
            content: Content::Own { handle, chunk },
        })
    }

    /// A co-root keeps what its part may need.
    pub(super) fn keep(&mut self, now: u64, chunk: &Chunk) {
        if !self.parts.collects(chunk.root, self.cfg.me) {
            return;
        }
        let pause_ns = REMIND_AFTER_TRIPS * self.cfg.round_trip_ns;
        let kept = self.sending_of(chunk.root);
        kept.next = kept.next.max(chunk.number + 1);
        let held = Held {
            chunk: *chunk,
            handle: None,
            repaired: None,
        };
        kept.held.insert(chunk.number, held);
        kept.pause_ns = pause_ns;
        kept.remind_at = now + pause_ns;
        self.settle(now, chunk.root);
    }

    pub(super) fn on_ack(&mut self, now: u64, from: u16, root: u16, next: u64) {
        let Some(sending) = self.sending.get_mut(&root) else {
            self.stats.nonsense += 1;
            return;
        };
        let sane = next <= sending.next || root != self.cfg.me;
        let Some(acked) = sending.acked.get_mut(&from).filter(|_| sane) else {
            self.stats.nonsense += 1;
            return;
        };
        self.stats.heard += 1;
        *acked = (*acked).max(next);
        self.settle(now, root);
    }

    pub(super) fn on_nack(&mut self, now: u64, from: u16, root: u16, gaps: &[(u64, u64)]) {
        let hold_ns = self.cfg.round_trip_ns;
        let Some(sending) = self.sending.get_mut(&root) else {
            self.stats.nonsense += 1;
            return;
        };
        self.stats.heard += 1;
        let (base, next) = (sending.base, sending.next);
        for &(first, end) in gaps {
            let within = first.max(base)..end.min(next);
            within.for_each(|number| sending.ask(now, from, number, hold_ns));
        }
    }

    /// Lets go of what all have.
    fn settle(&mut self, now: u64, root: u16) {
        let me = self.cfg.me;
        let here = match root == me {
            true => u64::MAX,
            false => self.receiving.next_of(root),
        };
        let Some(sending) = self.sending.get_mut(&root) else {
            return;
        };
        let slowest = sending.acked.values().copied().min();
        let base = slowest.unwrap_or(sending.next).min(here);
        let base = base.min(sending.next).max(sending.base);
        if base == sending.next {
            sending.remind_at = u64::MAX;
        }
        if base == sending.base {
            return;
        }
        sending.base = base;
        sending.held = sending.held.split_off(&base);
        while sending.left.front().is_some_and(|left| left.end <= base) {
            if let Some(Left { handle, dead, .. }) = sending.left.pop_front() {
                let end = dead.map_or(End::Well, End::Dead);
                self.events.push_back(GroupEvent::Done { handle, end });
            }
        }
        if root != me {
            let next = base;
            self.events.push_back(GroupEvent::Forget { root, next });
            self.part_reached(now, root);
        }
    }

    /// Asks members that have not acknowledged how far they are.
    pub(super) fn remind(&mut self, now: u64) {
        let me = self.cfg.me;
        for (&root, sending) in &mut self.sending {
            if sending.remind_at > now {
                continue;
            }
            let lagging: Vec<u16> = sending.lagging().collect();
            sending.pause_ns = (2 * sending.pause_ns).clamp(1, REMIND_PAUSE_MAX_NS);
            sending.remind_at = now + sending.pause_ns;
            let next = sending.next;
            if lagging.is_empty() {
                continue; // a co-root that lacks some itself
            }
            let many = lagging.len() > ASKED_MAX;
            if root == me && lagging.len() > 1 {
                let asked = if many { Vec::new() } else { lagging };
                let tail = Word::Tail { root, next, asked };
                self.words.push_back((To::All, tail));
                continue;
            }
            for member in lagging {
                let asked = [member].into();
                let tail = Word::Tail { root, next, asked };
                self.words.push_back((To::Member(member), tail));
            }
        }
    }

    /// A member that is dead acknowledges nothing. The members that a dead co-root collected for
    /// acknowledge to the root from now on.
    pub(super) fn stop_waiting_for(&mut self, now: u64, member: u16) {
        let me = self.cfg.me;
        let orphans: Vec<u16> = self.parts.of(me, member).collect();
        let roots: Vec<u16> = self.sending.keys().copied().collect();
        for root in roots {
            if root == member {
                self.sending.remove(&root);
                let next = u64::MAX;
                self.events.push_back(GroupEvent::Forget { root, next });
                continue;
            }
            let Some(sending) = self.sending.get_mut(&root) else {
                continue;
            };
            let told = sending.acked.remove(&member);
            if root == me {
                let lacked = told.unwrap_or(u64::MAX);
                let left = sending.left.iter_mut().filter(|left| left.end > lacked);
                left.for_each(|left| left.dead = Some(member));
                let begun = sending.posts.iter_mut().filter(|post| post.cut > 0);
                begun.for_each(|post| post.dead = Some(member));
                let base = sending.base;
                let alive = orphans.iter().filter(|orphan| !self.dead.contains(orphan));
                sending.acked.extend(alive.map(|&orphan| (orphan, base)));
            }
            self.settle(now, root);
        }
        self.pump(now);
    }
}

impl Place {
    /// Whether the bytes are to be taken.
    pub fn takes(&self) -> bool {
        matches!(self, Place::Posted { .. } | Place::Early { .. })
    }
}
