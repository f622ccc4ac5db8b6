//! A minimal implementation of MPI's matching, and the contents of messages.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// First number of loopback messages.
pub(super) const OWN: usize = 1 << 20;

/// A message from one endpoint to the other, or a loopback message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub tag: Option<u64>,
    pub len: u64,
}

/// Period of the contents in bytes. It is not a multiple of a block, so contents shifted by whole
/// blocks differ.
const PERIOD: u64 = 65_521;

/// Bytes `from .. from + n` of content number `id` (a message's or a memory region's).
pub(super) fn contents(id: u64, from: u64, n: usize) -> Vec<u8> {
    static ONCE: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let all = ONCE.get_or_init(|| (0..PERIOD).map(byte).collect());
    let mut out = Vec::with_capacity(n);
    let mut at = ((id.wrapping_mul(977) + from) % PERIOD) as usize;
    while out.len() < n {
        let more = (n - out.len()).min(all.len() - at);
        out.extend_from_slice(&all[at..at + more]);
        at = 0;
    }
    out
}

/// The senders that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Any,
    Other,
    Own,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub handle: u32,
    pub whom: Whom,
    pub tag: Option<(u64, u64)>,
    /// Bytes of its buffer.
    pub capacity: u64,
    /// A multi-receive: it stays posted while this many bytes, and at least one, are free.
    pub multi: Option<u64>,
    /// Bytes used of a multi-receive.
    pub used: u64,
}

impl Wish {
    fn accepts(&self, number: usize, message: &Message) -> bool {
        let wrong = if number < OWN { Whom::Own } else { Whom::Other };
        match (self.tag, message.tag) {
            _ if self.whom == wrong => false,
            (Some((want, ignore)), Some(tag)) => (want ^ tag) & !ignore == 0,
            (None, None) => true,
            _ => false,
        }
    }
}

/// The receiving side of one direction; messages are numbered in posting order.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub messages: Vec<Message>,
    /// Loopback messages, numbered from `OWN` on.
    pub own: Vec<Message>,
    pub posted: Vec<Wish>,
    unexpected: Vec<usize>,
    arrived: usize,
    /// Each receive with a message that it must get, and the message's offset in its buffer.
    pub matched: BTreeMap<(u32, usize), u64>,
}

impl Model {
    /// Matches the next messages, below number `upto`.
    pub fn arrive(&mut self, upto: u64) {
        while (self.arrived as u64) < upto {
            self.match_one(self.arrived);
            self.arrived += 1;
        }
    }

    /// Matches a message.
    fn match_one(&mut self, number: usize) {
        let message = self.message(number);
        let fits = |p: &Wish| p.accepts(number, &message);
        let Some(at) = self.posted.iter().position(fits) else {
            return self.unexpected.push(number);
        };
        let mut wish = self.posted[at];
        if self.give(&mut wish, number) {
            self.posted[at] = wish;
        } else {
            self.posted.remove(at);
        }
    }

    /// Posts a message and returns its number. A loopback message arrives at once.
    pub fn send(&mut self, message: Message, own: bool) -> usize {
        if !own {
            self.messages.push(message);
            return self.messages.len() - 1;
        }
        let number = OWN + self.own.len();
        self.own.push(message);
        self.match_one(number);
        number
    }

    /// The message with this number.
    pub fn message(&self, number: usize) -> Message {
        match number.checked_sub(OWN) {
            Some(own) => self.own[own],
            None => self.messages[number],
        }
    }

    /// Gives a message to a receive. Returns whether the receive stays posted. The used part of a
    /// buffer is rounded up to whole words.
    fn give(&mut self, wish: &mut Wish, number: usize) -> bool {
        self.matched.insert((wish.handle, number), wish.used);
        let Some(min) = wish.multi else { return false };
        let used = (wish.used + self.message(number).len).div_ceil(8) * 8;
        wish.used = used.min(wish.capacity);
        wish.capacity - wish.used >= min.max(1)
    }

    /// Posts a receive. A multi-receive takes all matching unexpected messages.
    pub fn post(&mut self, mut wish: Wish) {
        while let Some(number) = self.take(&wish) {
            if !self.give(&mut wish, number) {
                return;
            }
        }
        self.posted.push(wish);
    }

    /// Returns whether the receive has ended: it is not posted, and no message is in flight to it.
    pub fn is_over(&self, handle: u32) -> bool {
        let mut under_way = self.matched.range((handle, 0)..=(handle, usize::MAX));
        under_way.next().is_none() && self.posted.iter().all(|p| p.handle != handle)
    }

    /// The first unexpected message that matches.
    pub fn find(&self, wish: &Wish) -> Option<usize> {
        let mut waiting = self.unexpected.iter().copied();
        waiting.find(|&number| wish.accepts(number, &self.message(number)))
    }

    /// Removes the first unexpected message that matches.
    pub fn take(&mut self, wish: &Wish) -> Option<usize> {
        let number = self.find(wish)?;
        self.unexpected.retain(|&n| n != number);
        Some(number)
    }

    /// Cancels a posted receive. Returns whether it was posted.
    pub fn cancel(&mut self, handle: u32) -> bool {
        let before = self.posted.len();
        self.posted.retain(|p| p.handle != handle);
        self.posted.len() < before
    }

    /// Number of unexpected messages.
    pub fn waiting(&self) -> usize {
        self.unexpected.len()
    }
}
