//! The truth of a run: every message from posting to delivery, and MPI's matching rules in their
//! simplest form. The protocol is checked against it.

use crate::base::table::Table;
use crate::truth::credit::Credits;
use crate::truth::remote::{Call, Spot};
use marline_wire::{blocks, BLOCK_BYTES};
use std::collections::{BTreeMap, VecDeque};

/// The target of a remote write.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Key in the request.
    pub key: u64,
    /// Address in the request.
    pub addr: u64,
    /// The window for which the write is meant or to which it was admitted, if any.
    pub window: u32,
    /// Offset in the window.
    pub at: u64,
    /// True once the request arrived.
    pub asked: bool,
    /// True if the write was admitted and the window is open.
    pub open: bool,
    /// True if the write was refused and must fail.
    pub bad: bool,
    /// True if another write overlaps the range.
    pub loose: bool,
    /// True if the place was untouched on admission, so that its reader sees the bytes arrive.
    pub polled: bool,
    /// The range in which the place's reader has stored other bytes.
    pub kept: Option<(u64, u64)>,
    /// Data for the target's queue, carried by this message.
    pub data: Option<u64>,
    /// Bytes of the write after which the data follows.
    pub data_after: usize,
    /// True if the message is the whole operation, and is counted with it.
    pub alone: bool,
}

impl Put {
    /// A write in flight.
    pub(crate) fn new(spot: Spot, data: Option<u64>) -> Put {
        Put {
            key: spot.key,
            addr: spot.addr,
            window: spot.window,
            at: 0,
            asked: false,
            open: false,
            bad: false,
            loose: false,
            polled: false,
            kept: None,
            data,
            data_after: 0,
            alone: false,
        }
    }
}

/// A message.
#[derive(Clone, Debug)]
pub struct Msg {
    /// Sending endpoint.
    pub src: u32,
    /// Receiving endpoint.
    pub dst: u32,
    /// Number among the messages from `src` to `dst`.
    pub number: u32,
    /// Tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Length in bytes.
    pub len: u64,
    /// Start of the message's content.
    pub base: u64,
    /// The target, for a remote write.
    pub put: Option<Put>,
    /// The RPC, for a message between engines; `len` is then the length of the RPC's write, if any.
    pub call: Option<Box<Call>>,
    /// Blocks that landed with a correct sum: the first 64 (few messages have more), and the
    /// others.
    landed: u64,
    beyond: Vec<u64>,
    /// True if a packet with the message's head passed the receiver's checks.
    pub head_seen: bool,
    /// True if the message went through matching.
    pub arrived: bool,
    /// The matching receive, and the room in it.
    pub matched: Option<(u32, u64)>,
    /// Ordinal among matched messages.
    pub match_order: u32,
    /// True if the message was claimed and discarded.
    pub discarded: bool,
    /// True if the receive's completion came.
    pub delivered: bool,
    /// The result in the send's completion, after it came.
    pub send_done: Option<bool>,
    /// True if the message needs no receive any more.
    settled: bool,
}

impl Msg {
    /// Records a landed fragment.
    pub fn land(&mut self, offset: u64, len: u64) {
        let beyond = blocks(self.size()).div_ceil(64) as usize - 1;
        if self.beyond.len() < beyond {
            self.beyond.resize(beyond, 0);
        }
        for g in offset / BLOCK_BYTES..offset / BLOCK_BYTES + blocks(len) {
            let word = match g / 64 {
                0 => &mut self.landed,
                n => &mut self.beyond[n as usize - 1],
            };
            *word |= 1 << (g % 64);
        }
    }

    fn has(&self, block: u64) -> bool {
        let word = match block / 64 {
            0 => self.landed,
            n => self.beyond.get(n as usize - 1).copied().unwrap_or(0),
        };
        word >> (block % 64) & 1 == 1
    }

    /// Number of bytes transferred.
    pub(crate) fn size(&self) -> u64 {
        self.call
            .as_ref()
            .map_or(self.len, |c| c.bytes.len() as u64)
    }

    /// Number of bytes that the receiver accepts.
    pub fn wanted(&self) -> u64 {
        match self.matched {
            _ if self.discarded => 0,
            Some((_, room)) => self.len.min(room),
            None => self.size(),
        }
    }

    /// True if all accepted bytes landed.
    pub fn complete(&self) -> bool {
        let wanted = self.wanted();
        wanted == 0 || (0..blocks(wanted)).all(|g| self.has(g))
    }

    /// True if every byte landed (for an empty message: the head).
    pub fn whole(&self) -> bool {
        self.head_seen && (0..blocks(self.size())).all(|g| self.has(g))
    }

    /// Frees memory that is no longer needed.
    pub fn forget(&mut self) {
        if self.delivered && self.send_done.is_some() {
            (self.landed, self.beyond) = (0, Vec::new());
        }
    }
}

/// Every message.
pub struct Truth {
    /// All messages, by the simulator's number.
    pub msgs: Vec<Msg>,
    pairs: Table<(u32, u32), Vec<u32>>,
    /// Number of matched messages.
    pub matches: u32,
    /// The credit of senders.
    pub credits: Credits,
    /// Messages to each endpoint that need a receive: untagged, tagged.
    open: Vec<[u32; 2]>,
}

impl Truth {
    /// The truth for nodes with this credit in bytes.
    pub fn new(credit_bytes: u64) -> Truth {
        Truth {
            msgs: Vec::new(),
            pairs: Table::default(),
            matches: 0,
            credits: Credits::new(credit_bytes),
            open: Vec::new(),
        }
    }

    /// Start of the content of message `uid`.
    pub fn base_of(&self, uid: u32) -> u64 {
        (uid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    /// Records a posted message; returns its number.
    pub fn add(
        &mut self,
        src: u32,
        dst: u32,
        tag: Option<u64>,
        data: Option<u64>,
        len: u64,
    ) -> u32 {
        let uid = self.msgs.len() as u32;
        let base = self.base_of(uid);
        let list = self.pairs.entry((src, dst)).or_default();
        self.msgs.push(Msg {
            src,
            dst,
            number: list.len() as u32,
            tag,
            data,
            len,
            base,
            put: None,
            call: None,
            landed: 0,
            beyond: Vec::new(),
            head_seen: false,
            arrived: false,
            matched: None,
            match_order: 0,
            discarded: false,
            delivered: false,
            send_done: None,
            settled: false,
        });
        list.push(uid);
        if self.open.len() <= dst as usize {
            self.open.resize(dst as usize + 1, [0; 2]);
        }
        self.open[dst as usize][tag.is_some() as usize] += 1;
        uid
    }

    /// Puts the last RPC from one endpoint to another into the RPC before it; `None`: one of them
    /// is no RPC.
    pub(crate) fn join(&mut self, uid: u32) -> Option<()> {
        let (src, dst) = (self.msgs[uid as usize].src, self.msgs[uid as usize].dst);
        let list = self.pairs.get_mut(&(src, dst))?;
        list.retain(|&of| of != uid);
        let &first = list.last()?;
        let other = self.msgs[uid as usize].call.as_ref()?;
        let (other, more) = (other.bytes.clone(), other.more);
        let number = self.msgs[first as usize].number;
        let at = self.msgs[first as usize]
            .call
            .as_mut()?
            .join(uid, (&other, more));
        let msg = &mut self.msgs[uid as usize];
        msg.number = number;
        msg.call.as_mut()?.within = Some((first, at));
        Some(())
    }

    /// Notes that the operation of a message was refused. If its RPC is shared, the answer names
    /// it.
    pub(crate) fn refuse(&mut self, uid: u32) {
        let call = self.msgs[uid as usize].call.as_ref();
        let within = call.and_then(|call| call.within);
        let (first, at) = within.unwrap_or((uid, 0));
        let first = self.msgs[first as usize].call.as_ref();
        let shared = first.filter(|call| !call.joined.is_empty());
        let Some(answer) = shared.and_then(|call| call.answer) else {
            return;
        };
        if let Some(call) = self.msgs[answer as usize].call.as_mut() {
            call.bytes.extend_from_slice(&at.to_le_bytes());
        }
    }

    /// Notes that the message needs no further receive.
    pub fn settle(&mut self, uid: u32) {
        let msg = &mut self.msgs[uid as usize];
        if !msg.settled {
            msg.settled = true;
            self.open[msg.dst as usize][msg.tag.is_some() as usize] -= 1;
        }
    }

    /// Number of messages to an endpoint that still need a receive.
    pub fn to_come(&self, dst: u32, tagged: bool) -> u32 {
        self.open
            .get(dst as usize)
            .map_or(0, |o| o[tagged as usize])
    }

    /// The message with this number from `src` to `dst`.
    pub fn find(&self, src: u32, dst: u32, number: u32) -> Option<u32> {
        self.pairs.get(&(src, dst))?.get(number as usize).copied()
    }
}

/// A posted receive in the plain model.
#[derive(Clone, Debug)]
pub struct PlainRecv {
    /// The receive's handle.
    pub handle: u32,
    /// The source that the receive names, if any.
    pub source: Option<u32>,
    /// Tag and ignored bits.
    pub tag: Option<(u64, u64)>,
    /// Bytes of the receive's buffer.
    pub capacity: u64,
    /// Multi-receive: minimum of free space.
    pub multi_min: Option<u64>,
    /// Multi-receive: bytes used.
    pub used: u64,
    /// Receives posted later have a higher number.
    pub order: u64,
}

impl PlainRecv {
    /// True if the receive matches the message.
    pub fn accepts(&self, msg: &Msg) -> bool {
        let source = self.source.is_none_or(|s| s == msg.src);
        let tag = match (self.tag, msg.tag) {
            (Some((want, ignore)), Some(tag)) => (want ^ tag) & !ignore == 0,
            (None, None) => true,
            _ => false,
        };
        source && tag
    }
}

impl PlainRecv {
    /// Returns whether a death may end the receive although it names no source.
    fn is_reported(&self) -> bool {
        self.source.is_none() && self.tag.is_some() && self.multi_min.is_none()
    }
}

/// A match of message and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Message.
    pub uid: u32,
    /// Receive.
    pub handle: u32,
    /// Offset in the receive's buffer.
    pub base: u64,
    /// Room from that offset on.
    pub room: u64,
}

/// Posted receives and unexpected messages of one endpoint, as plain lists.
#[derive(Debug, Default)]
pub struct Plain {
    /// Posted receives, oldest first (usually the first one matches).
    pub posted: VecDeque<PlainRecv>,
    /// Unexpected messages, oldest first.
    pub unexpected: Vec<u32>,
    /// True if a death ends receives from any source.
    pub any_source_fails: bool,
    /// True after a death, until it has ended a receive.
    pub news: bool,
    /// Receives that messages of strangers matched, as they were before, and whether they stayed
    /// posted; by message.
    pub before: BTreeMap<u32, (PlainRecv, bool)>,
    /// Receives posted so far.
    next: u64,
}

impl Plain {
    /// An empty model.
    pub fn new(any_source_fails: bool) -> Plain {
        Plain {
            any_source_fails,
            ..Plain::default()
        }
    }

    /// A message arrives in order.
    pub fn arrive(&mut self, uid: u32, msg: &Msg) -> Option<Match> {
        let Some(at) = self.posted.iter().position(|p| p.accepts(msg)) else {
            self.unexpected.push(uid);
            return None;
        };
        Some(self.take(at, uid, msg))
    }

    fn take(&mut self, at: usize, uid: u32, msg: &Msg) -> Match {
        let before = self.posted[at].clone();
        let recv = &mut self.posted[at];
        let (handle, base) = (recv.handle, recv.used);
        let room = recv.capacity - base;
        let stays = recv.multi_min.is_some_and(|min| {
            let used = (base + msg.len).min(recv.capacity);
            recv.used = (used.div_ceil(8) * 8).min(recv.capacity);
            recv.capacity - recv.used >= min.max(1)
        });
        if !stays {
            self.posted.remove(at);
        }
        if before.source.is_none() {
            self.before.insert(uid, (before, stays));
        }
        Match {
            uid,
            handle,
            base,
            room,
        }
    }

    /// A receive is posted; returns immediate matches.
    pub fn post(&mut self, recv: PlainRecv, msgs: &[Msg]) -> Vec<Match> {
        self.next += 1;
        let order = self.next;
        self.post_again(PlainRecv { order, ..recv }, msgs)
    }

    /// A receive is posted at its place in the order; returns immediate matches.
    pub fn post_again(&mut self, recv: PlainRecv, msgs: &[Msg]) -> Vec<Match> {
        let handle = recv.handle;
        let later = self.posted.iter().rposition(|p| p.order < recv.order);
        self.posted.insert(later.map_or(0, |at| at + 1), recv);
        let mut matches = Vec::new();
        loop {
            let here = self.posted.iter().rposition(|p| p.handle == handle);
            let Some(at) = here else { return matches };
            let recv = &self.posted[at];
            let accepts = |&uid: &u32| recv.accepts(&msgs[uid as usize]);
            let Some(found) = self.unexpected.iter().position(accepts) else {
                return matches;
            };
            let uid = self.unexpected.remove(found);
            matches.push(self.take(at, uid, &msgs[uid as usize]));
        }
    }

    /// The message that a peek would find.
    pub fn peek(&self, recv: &PlainRecv, msgs: &[Msg]) -> Option<u32> {
        self.unexpected
            .iter()
            .copied()
            .find(|&uid| recv.accepts(&msgs[uid as usize]))
    }

    /// Cancels an unmatched receive. Returns whether it was there.
    pub fn cancel(&mut self, handle: u32) -> bool {
        let at = self.posted.iter().position(|p| p.handle == handle);
        at.map(|at| self.posted.remove(at)).is_some()
    }

    /// An endpoint died: incomplete messages are dropped, and receives that name it end.
    pub fn tear_down(&mut self, src: u32, msgs: &[Msg]) -> Vec<u32> {
        self.unexpected.retain(|&uid| {
            let msg = &msgs[uid as usize];
            msg.src != src || msg.whole()
        });
        let (gone, stay): (VecDeque<_>, _) =
            (self.posted.drain(..)).partition(|p: &PlainRecv| p.source == Some(src));
        self.posted = stay;
        gone.iter().map(|p| p.handle).collect()
    }

    /// Receives from any source that a death ends.
    pub fn take_reported(&mut self) -> Vec<u32> {
        if !self.any_source_fails {
            return Vec::new();
        }
        let (reported, stay): (VecDeque<_>, _) =
            (self.posted.drain(..)).partition(PlainRecv::is_reported);
        self.posted = stay;
        self.news = reported.is_empty();
        reported.iter().map(|p| p.handle).collect()
    }

    /// True if a death before its posting ends the receive that was just posted.
    pub fn is_news(&mut self, handle: u32) -> bool {
        let reported = |p: &PlainRecv| p.handle == handle && p.is_reported();
        let news = self.news && self.posted.iter().rev().any(reported);
        self.news &= !news;
        news && self.cancel(handle)
    }
}
