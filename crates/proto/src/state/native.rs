//! A path without software reliability: data that left on it counts as arrived, and is kept
//! nowhere. Only the numbers of packets are kept that carried such data and are not known to have
//! arrived. They are asked for now and then; that one of them is missing, or stays unknown after
//! the path failed, is found out, and the conversation ends with an error: what is lost here nobody
//! can send again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use marline_wire::{Ack, MasksView};

/// An ack names 1,024 packets. Of so many it is not known that they arrived, at most: further data
/// leaves as on any path until an ack has come.
const UNSURE_MAX: u64 = 512;
/// Stretches of packets are kept, as many at most.
const STRETCHES_MAX: usize = 32;
/// A packet more that wants an ack goes along after so many numbers.
const ASK_EVERY: u64 = 256;
/// Where packets get lost, what left last is asked for after so long.
pub const ASK_NS: u64 = 100_000_000;
/// Packets that are overtaken by so many are lost.
const OVERTAKEN: u64 = 64;

/// The packets that left on a native path.
#[derive(Debug, Default)]
pub struct Native {
    /// Packets that are not known to have arrived: from, to.
    unsure: VecDeque<(u64, u64)>,
    /// When the first of them left, or was asked for last.
    since_ns: u64,
    /// Packets below this left so long before the last question that an answer to it names them.
    asked: u64,
    /// The path failed then, and they may be lost.
    doubted_ns: Option<u64>,
}

impl Native {
    /// Returns whether data may leave natively in packet `number`.
    pub fn takes(&self, number: u64) -> bool {
        let first = self.unsure.front().map_or(number, |stretch| stretch.0);
        let few = number - first < UNSURE_MAX && self.unsure.len() < STRETCHES_MAX;
        few && self.doubted_ns.is_none()
    }

    /// `count` packets from `number` on have left with data; whether it is time to ask for an ack.
    pub fn left(&mut self, number: u64, count: u64, now: u64) -> bool {
        if self.unsure.is_empty() {
            self.since_ns = now;
        }
        match self.unsure.back_mut().filter(|last| last.1 == number) {
            Some(last) => last.1 += count,
            None => self.unsure.push_back((number, number + count)),
        }
        number / ASK_EVERY != (number + count) / ASK_EVERY
    }

    /// Takes an ack; `true`: something is lost. `sure`: the path is in order and loses nothing
    /// until it fails.
    pub fn heard(&mut self, ack: &Ack<MasksView<'_>>, end: u64, sure: bool) -> bool {
        let ordered = sure;
        let sure = sure && self.doubted_ns.is_none();
        let mut masks = [0; marline_wire::ACK_MASKS_MAX];
        masks
            .iter_mut()
            .zip(ack.masks.iter())
            .for_each(|(to, mask)| *to = mask);
        let named = |number: u64| {
            let at = number.checked_sub(ack.base).unwrap_or(u64::MAX);
            let mask = masks.get((at / 64) as usize).copied().unwrap_or(0);
            mask >> (at % 64) & 1 == 1
        };
        let mut left = VecDeque::new();
        let mut lost = false;
        for &(from, to) in &self.unsure {
            let mut open = from;
            for number in from..to.min(end) {
                let here = named(number) || (sure && number < ack.base);
                lost |= !here && (number < ack.base || end - number > OVERTAKEN);
                let answered = number < self.asked && end > self.asked;
                lost |= !here && (self.doubted_ns.is_some() || ordered || answered);
                if here && open == number {
                    open = number + 1;
                }
            }
            if open < to {
                left.push_back((open, to));
            }
        }
        self.unsure = left;
        if self.unsure.is_empty() {
            self.doubted_ns = None;
        }
        lost
    }

    /// The path failed: what is not known to have arrived may be lost.
    pub fn doubt(&mut self, now: u64) {
        if !self.unsure.is_empty() {
            self.doubted_ns.get_or_insert(now);
        }
    }

    /// True if nothing is unknown.
    pub fn is_sure(&self) -> bool {
        self.unsure.is_empty()
    }

    /// When something is due: a question, or the end of waiting for its answer. `patience_ns`: how
    /// long a doubt lasts. `lossy`: the path loses packets while it works.
    pub fn due(&self, patience_ns: u64, lossy: bool) -> Option<u64> {
        if self.unsure.is_empty() {
            return None;
        }
        let asked = self.since_ns + ASK_NS;
        match self.doubted_ns {
            Some(at) => Some(asked.min(at + patience_ns)),
            None => Some(asked).filter(|_| lossy),
        }
    }

    /// A question leaves, in packet `next` or later; whether a doubt has lasted too long.
    pub fn serve(&mut self, now: u64, next: u64, patience_ns: u64) -> bool {
        (self.since_ns, self.asked) = (now, next);
        self.doubted_ns.is_some_and(|at| now >= at + patience_ns)
    }
}

/// The part of a path; nothing where the rail is not native.
pub type OfPath = Option<Box<Native>>;
