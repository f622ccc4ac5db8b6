//! The sending side: a root's broadcasts, cut into chunks, within its window.

use super::acked::Acked;
use super::repair::Repair;
use super::{Chunk, Content, End, Group, GroupEvent, GroupMutation, To};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Round trips after the last chunk before anyone is asked: acknowledgements may be under way.
const REMIND_AFTER_TRIPS: u64 = 2;

/// A broadcast of this member that has not left whole.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) broadcast: u64,
    pub(super) handle: u32,
    pub(super) len: u64,
    /// Bytes that were cut into chunks.
    pub(super) cut: u64,
    /// Its chunks are copied as they leave.
    pub(super) copies: bool,
    /// It says that the group is to be left.
    pub(super) leaves: bool,
    /// This member died before it had all.
    pub(super) dead: Option<u16>,
}

/// Where the bytes of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// In the memory of an operation.
    Lent(u32),
    /// In a copy.
    Copy,
}

/// A chunk that not all have acknowledged.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) chunk: Chunk,
    pub(super) bytes: Bytes,
    /// The rail it left on; none: it was not multicast by this member.
    pub(super) lane: Option<u8>,
    /// Who was sent it since it left.
    pub(super) repair: Option<Repair>,
}

/// An own broadcast that has left whole from lent memory.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) handle: u32,
    /// Number after that of its last chunk.
    pub(super) end: u64,
    pub(super) dead: Option<u16>,
}

/// A parity that is to be sent, or is being made.
#[derive(Debug)]
struct Parity {
    handle: u32,
    /// Its first chunk; `parity` counts them.
    chunk: Chunk,
    /// The operation ends with it.
    ends: Option<End>,
    due: bool,
}

/// The chunks of one root, as the root or a co-root has them.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) posts: VecDeque<Post>,
    pub(super) left: VecDeque<Left>,
    pub(super) chunks: BTreeMap<u64, Held>,
    /// All chunks below were acknowledged by all.
    pub(super) base: u64,
    /// Number of the next chunk.
    pub(super) next: u64,
    /// How far each member is whose acknowledgements are collected here.
    pub(super) acked: Acked,
    /// Of these, those that hear no multicast.
    pub(super) deaf: BTreeSet<u16>,
    /// One of them lost much of late.
    pub(super) lossy: bool,
    /// Chunks to send again, or to one member alone.
    pub(super) repairs: VecDeque<(Option<u16>, u64)>,
    parity: Option<Parity>,
    pub(super) remind_at: u64,
    pub(super) pause_ns: u64,
    /// How often members were asked since the last chunk or acknowledgement.
    pub(super) reminded: u32,
    pub(super) reminded_at: u64,
}

impl Sending {
    pub(super) fn new(part: impl Iterator<Item = u16>) -> Sending {
        Sending {
            posts: VecDeque::new(),
            left: VecDeque::new(),
            chunks: BTreeMap::new(),
            base: 0,
            next: 0,
            acked: Acked::new(part),
            deaf: BTreeSet::new(),
            lossy: false,
            repairs: VecDeque::new(),
            parity: None,
            remind_at: u64::MAX,
            pause_ns: 0,
            reminded: 0,
            reminded_at: 0,
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        (self.remind_at < u64::MAX).then_some(self.remind_at)
    }

    /// Whether there is somebody to send to.
    pub(super) fn is_alone(&self) -> bool {
        self.acked.is_empty()
    }

    /// Members of the part said that they hear no multicast.
    pub(super) fn hears_of_deaf(&self) -> bool {
        !self.deaf.is_empty()
    }

    /// Whether members hear no multicast, and whether some lost much since the last call.
    pub(super) fn take_news(&mut self) -> (bool, bool) {
        (self.hears_of_deaf(), core::mem::take(&mut self.lossy))
    }

    /// Members that lack something or have not said otherwise.
    pub(super) fn lagging(&self) -> impl Iterator<Item = u16> + '_ {
        self.acked.behind(self.next)
    }

    /// Operations that have not ended.
    pub(super) fn operations(&self) -> usize {
        let ends = self.parity.as_ref().is_some_and(|p| p.ends.is_some());
        self.posts.len() + self.left.len() + ends as usize
    }

    /// Chunks that are held.
    pub(super) fn held(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Bytes of copies.
    pub(super) fn copied_bytes(&self) -> u64 {
        let copies = self.chunks.values().filter(|h| h.bytes == Bytes::Copy);
        copies.map(|h| h.chunk.len as u64).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let chunks = self.chunks.len() * size_of::<(u64, Held)>();
        let repairs = self.repairs.capacity() * size_of::<(Option<u16>, u64)>();
        let posts = self.posts.capacity() * size_of::<Post>();
        let left = self.left.capacity() * size_of::<Left>();
        size_of::<Sending>() + self.acked.heap_bytes() + chunks + repairs + posts + left
    }

    pub(super) fn post(&mut self, post: Post) {
        self.posts.push_back(post);
    }

    fn has_room(&self, window: u32) -> bool {
        self.next - self.base < window as u64
    }

    /// Whether a chunk waits to leave.
    pub(super) fn has_work(&self, window: u32) -> bool {
        let due = self.parity.as_ref().is_some_and(|parity| parity.due);
        due || !self.repairs.is_empty() || !self.posts.is_empty() && self.has_room(window)
    }

    /// The next chunk that was never sent, of the first broadcast that has not left.
    fn cut(&mut self, root: u16, size: u32) -> Option<(u32, Held)> {
        let post = self.posts.front_mut()?;
        let len = (post.len - post.cut).min(size as u64);
        let last = post.cut + len == post.len;
        let chunk = Chunk {
            root,
            number: self.next,
            broadcast: post.broadcast,
            offset: post.cut,
            len: len as u32,
            total: post.len,
            parity: 0,
            asks: last && !post.copies,
            leaves: post.leaves,
        };
        post.cut += len;
        self.next += 1;
        let bytes = match post.copies {
            true => Bytes::Copy,
            false => Bytes::Lent(post.handle),
        };
        let held = Held {
            chunk,
            bytes,
            lane: None,
            repair: None,
        };
        Some((post.handle, held))
    }

    /// Counts a chunk into the parity that is being made.
    fn add_to_parity(&mut self, handle: u32, chunk: &Chunk, count: u8) {
        let last = chunk.offset + chunk.len as u64 == chunk.total;
        let parity = self.parity.get_or_insert(Parity {
            handle,
            chunk: Chunk {
                asks: false,
                leaves: false,
                ..*chunk
            },
            ends: None,
            due: false,
        });
        parity.chunk.parity += 1;
        parity.due = parity.chunk.parity == count || last && parity.chunk.parity > 1;
        if last && !parity.due {
            self.parity = None;
        }
    }

    /// The first broadcast has left whole: its operation, if it ends now.
    fn finish(&mut self, early: bool) -> Option<(u32, End)> {
        let post = self.posts.pop_front_if(|post| post.cut == post.len)?;
        let end = post.dead.map_or(End::Well, End::Dead);
        if !post.copies && !early {
            self.left.push_back(Left {
                handle: post.handle,
                end: self.next,
                dead: post.dead,
            });
            return None;
        }
        match &mut self.parity {
            Some(parity) if parity.due => {
                parity.ends = Some(end);
                None
            }
            _ => Some((post.handle, end)),
        }
    }

    /// All have what a parity that waits is made of: it is not sent; the operation that waits for
    /// it.
    pub(super) fn drop_parity(&mut self) -> Option<(u32, End)> {
        let base = self.base;
        let over = |p: &&mut Parity| p.due && p.chunk.number + p.chunk.parity as u64 <= base;
        self.parity.as_mut().filter(over)?;
        let parity = self.parity.take()?;
        parity.ends.map(|end| (parity.handle, end))
    }
}

impl Group {
    pub(super) fn sending_of(&mut self, root: u16) -> &mut Sending {
        let (parts, me, dead) = (&self.parts, self.cfg.me, &self.dead);
        self.sending.entry(root).or_insert_with(|| {
            let part = parts.of(root, me);
            Sending::new(part.filter(|member| !dead.contains(member)))
        })
    }

    /// The next chunk to send: repairs first.
    pub(super) fn next_content(&mut self, now: u64) -> Option<(To, Content)> {
        if !self.pace.may_send(now) {
            return None;
        }
        let next = self.next_repair().or_else(|| self.next_parity());
        let (to, content) = next.or_else(|| self.next_own(now))?;
        let len = match content {
            Content::Own { chunk, .. } | Content::Kept(chunk) => chunk.len,
            Content::Parity { chunk, .. } => chunk.len,
            Content::Mark { .. } => 0,
        };
        self.pace.sent(now, len, self.cfg.chunk);
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
        let lane = self.lanes.pick(None);
        Some((To::All { lane }, Content::Parity { handle, chunk }))
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
        own.pause_ns = after;
        own.remind_at = now + after;
        own.reminded = 0;
        if scheme.parity > 0 && !scheme.alone {
            own.add_to_parity(handle, &chunk, scheme.parity.min(super::PARITY_MAX));
        }
        let to = match scheme.alone {
            true => To::Member(own.acked.members().next()?),
            false => {
                let lane = self.lanes.pick(None);
                self.lanes.sent(lane);
                held.lane = Some(lane);
                To::All { lane }
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

    /// Sends a chunk that just left, or came, to those members alone that need it so.
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
            members.extend(sending.deaf.iter());
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
        let repairs = members.into_iter().map(|m| (Some(m), chunk.number));
        sending.repairs.extend(repairs);
    }
}
