//! The truth of a run: every message from post to delivery, and MPI's matching rules in their
//! plainest form. The protocol is checked against it.

use crate::base::table::Table;
use crate::truth::credit::Credits;
use crate::truth::remote::{Call, Spot};
use marline_wire::{granules, GRANULE};
use std::collections::VecDeque;

/// Where a remote write goes.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Key and address that it names.
    pub key: u64,
    /// See `key`.
    pub addr: u64,
    /// The window that it means, or is let into, if any.
    pub window: u32,
    /// Offset there.
    pub at: u64,
    /// Its target was asked for the memory.
    pub asked: bool,
    /// It was let in, and the window is open.
    pub open: bool,
    /// It was not let in: it must be refused.
    pub bad: bool,
    /// Another writes where it does.
    pub loose: bool,
    /// Nothing was there when it was let in, so that its reader sees what comes.
    pub polled: bool,
    /// The part of it, from and to, in which its reader has stored something else.
    pub kept: Option<(u64, u64)>,
    /// For the queue of its target, in this message.
    pub data: Option<u64>,
    /// Bytes of the write that the data follows.
    pub trails: usize,
    /// It is all of its operation, which is counted with it.
    pub alone: bool,
}

impl Put {
    /// One that is on its way.
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
            trails: 0,
            alone: false,
        }
    }
}

/// One message.
#[derive(Clone, Debug)]
pub struct Msg {
    /// Sending endpoint.
    pub src: u32,
    /// Receiving endpoint.
    pub dst: u32,
    /// Number among those from `src` to `dst`.
    pub number: u32,
    /// Tag, if it is a tagged one.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Length in bytes.
    pub len: u64,
    /// Where its content starts.
    pub base: u64,
    /// It is a remote write.
    pub put: Option<Put>,
    /// It goes from engine to engine; `len` is then of what is written, if anything is.
    pub call: Option<Box<Call>>,
    /// Granules that landed with the right sum: the first 64 (few messages have more), the others.
    landed: u64,
    beyond: Vec<u64>,
    /// A packet with its head passed the receiver's checks.
    pub head_seen: bool,
    /// It went through matching.
    pub arrived: bool,
    /// Receive that it matched, with the room there.
    pub matched: Option<(u32, u64)>,
    /// Its place in the order in which messages got receives.
    pub match_order: u32,
    /// Claimed and thrown away.
    pub discarded: bool,
    /// The receive's completion came.
    pub delivered: bool,
    /// The send's completion came.
    pub send_done: Option<bool>,
    /// No receive is needed for it any more.
    settled: bool,
}

impl Msg {
    /// Records a landed fragment.
    pub fn land(&mut self, offset: u64, len: u64) {
        let beyond = granules(self.size()).div_ceil(64) as usize - 1;
        if self.beyond.len() < beyond {
            self.beyond.resize(beyond, 0);
        }
        for g in offset / GRANULE..offset / GRANULE + granules(len) {
            let word = match g / 64 {
                0 => &mut self.landed,
                n => &mut self.beyond[n as usize - 1],
            };
            *word |= 1 << (g % 64);
        }
    }

    fn has(&self, granule: u64) -> bool {
        let word = match granule / 64 {
            0 => self.landed,
            n => self.beyond.get(n as usize - 1).copied().unwrap_or(0),
        };
        word >> (granule % 64) & 1 == 1
    }

    /// Bytes that travel.
    pub(crate) fn size(&self) -> u64 {
        self.call
            .as_ref()
            .map_or(self.len, |c| c.bytes.len() as u64)
    }

    /// Bytes that the receiver wants.
    pub fn wanted(&self) -> u64 {
        match self.matched {
            _ if self.discarded => 0,
            Some((_, room)) => self.len.min(room),
            None => self.size(),
        }
    }

    /// True if all that is wanted landed.
    pub fn complete(&self) -> bool {
        let wanted = self.wanted();
        wanted == 0 || (0..granules(wanted)).all(|g| self.has(g))
    }

    /// True if every byte landed (a message without bytes: its head did).
    pub fn whole(&self) -> bool {
        self.head_seen && (0..granules(self.size())).all(|g| self.has(g))
    }

    /// Gives memory back once nobody will ask.
    pub fn forget(&mut self) {
        if self.delivered && self.send_done.is_some() {
            (self.landed, self.beyond) = (0, Vec::new());
        }
    }
}

/// Every message.
pub struct Truth {
    /// All of them, by the number that the simulator gives.
    pub msgs: Vec<Msg>,
    pairs: Table<(u32, u32), Vec<u32>>,
    /// Messages that got a receive.
    pub matches: u32,
    /// The credit of senders.
    pub credits: Credits,
    /// Messages to each endpoint that need a receive: untagged, tagged.
    open: Vec<[u32; 2]>,
}

impl Truth {
    /// Between nodes that give each other so many bytes of credit.
    pub fn new(credit_bytes: u64) -> Truth {
        Truth {
            msgs: Vec::new(),
            pairs: Table::default(),
            matches: 0,
            credits: Credits::new(credit_bytes),
            open: Vec::new(),
        }
    }

    /// Where the content of message `uid` starts.
    pub fn base_of(&self, uid: u32) -> u64 {
        (uid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    /// A message is posted; its number here.
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

    /// The message posted last from one endpoint to another, a call, goes in the one before it;
    /// `None`: that is no call.
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

    /// The operation of a message is refused: the answer names it, if its call is shared.
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

    /// The message needs no (further) receive.
    pub fn settle(&mut self, uid: u32) {
        let msg = &mut self.msgs[uid as usize];
        if !msg.settled {
            msg.settled = true;
            self.open[msg.dst as usize][msg.tag.is_some() as usize] -= 1;
        }
    }

    /// Messages to an endpoint that still need a receive.
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
    /// Its handle.
    pub handle: u32,
    /// Endpoint it names, if any.
    pub source: Option<u32>,
    /// Tag and ignored bits.
    pub tag: Option<(u64, u64)>,
    /// Bytes of its buffer.
    pub capacity: u64,
    /// Multi-receive: least room.
    pub multi_min: Option<u64>,
    /// Multi-receive: bytes used.
    pub used: u64,
}

impl PlainRecv {
    /// True if it takes the message.
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
    /// A death may end it, though it names nobody.
    fn is_told(&self) -> bool {
        self.source.is_none() && self.tag.is_some() && self.multi_min.is_none()
    }
}

/// A match: message, receive, where in the buffer, room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Message.
    pub uid: u32,
    /// Receive.
    pub handle: u32,
    /// Offset in its buffer.
    pub base: u64,
    /// Room from there.
    pub room: u64,
}

/// Posted receives and unexpected messages of one endpoint, as plain lists.
#[derive(Debug, Default)]
pub struct Plain {
    /// Posted, oldest first (and mostly the first that goes).
    pub posted: VecDeque<PlainRecv>,
    /// Unexpected, oldest first.
    pub unexpected: Vec<u32>,
    /// A death ends receives from anyone.
    pub any_source_fails: bool,
    /// One did not yet.
    pub news: bool,
}

impl Plain {
    /// Nothing yet.
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
        Match {
            uid,
            handle,
            base,
            room,
        }
    }

    /// A receive is posted; what it matches at once.
    pub fn post(&mut self, recv: PlainRecv, msgs: &[Msg]) -> Vec<Match> {
        let handle = recv.handle;
        self.posted.push_back(recv);
        let mut matches = Vec::new();
        loop {
            let at = self.posted.len() - 1;
            let here = self.posted.get(at).filter(|p| p.handle == handle);
            let Some(recv) = here else { return matches };
            let accepts = |&uid: &u32| recv.accepts(&msgs[uid as usize]);
            let Some(found) = self.unexpected.iter().position(accepts) else {
                return matches;
            };
            let uid = self.unexpected.remove(found);
            matches.push(self.take(at, uid, &msgs[uid as usize]));
            if self.posted.is_empty() {
                return matches;
            }
        }
    }

    /// The message that a peek would find.
    pub fn peek(&self, recv: &PlainRecv, msgs: &[Msg]) -> Option<u32> {
        self.unexpected
            .iter()
            .copied()
            .find(|&uid| recv.accepts(&msgs[uid as usize]))
    }

    /// Takes back a receive that nothing matched; whether it was there.
    pub fn cancel(&mut self, handle: u32) -> bool {
        let at = self.posted.iter().position(|p| p.handle == handle);
        at.map(|at| self.posted.remove(at)).is_some()
    }

    /// An endpoint died: what is not whole is gone, and receives that name it end.
    pub fn bury(&mut self, src: u32, msgs: &[Msg]) -> Vec<u32> {
        self.unexpected.retain(|&uid| {
            let msg = &msgs[uid as usize];
            msg.src != src || msg.whole()
        });
        let (gone, stay): (VecDeque<_>, _) =
            (self.posted.drain(..)).partition(|p: &PlainRecv| p.source == Some(src));
        self.posted = stay;
        gone.iter().map(|p| p.handle).collect()
    }

    /// Receives from anyone that end with a death, where one does.
    pub fn tell(&mut self) -> Vec<u32> {
        if !self.any_source_fails {
            return Vec::new();
        }
        let (told, stay): (VecDeque<_>, _) = (self.posted.drain(..)).partition(PlainRecv::is_told);
        self.posted = stay;
        self.news = told.is_empty();
        told.iter().map(|p| p.handle).collect()
    }

    /// True if the receive that was just posted, and is there, ends with a death before it.
    pub fn is_news(&mut self, handle: u32) -> bool {
        let told = |p: &&PlainRecv| p.handle == handle && p.is_told();
        let news = self.news && self.posted.back().filter(told).is_some();
        self.news &= !news;
        news && self.cancel(handle)
    }
}
