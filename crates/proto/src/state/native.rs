//! Native paths (without software reliability): data counts as arrived once it has left, and no
//! copy is retained. Only the numbers of packets with such data that are not known to have arrived
//! are retained. From time to time a probe asks for an ack. If a packet is missing, or still
//! unknown after the path failed, the connection ends with an error, since lost data cannot be
//! retransmitted.

use alloc::collections::VecDeque;
use marline_wire::{Ack, MasksView};

/// Unacknowledged packets at most: an ack names 1,024. Beyond, data leaves reliably until an ack
/// comes.
const UNCONFIRMED_MAX: u64 = 512;
/// Ranges of packets at most.
const STRETCHES_MAX: usize = 32;
/// Packet numbers after which a probe leaves.
const ASK_EVERY: u64 = 256;
/// Interval of probes for the last packets, on a path that loses packets.
pub const ASK_NS: u64 = 100_000_000;
/// A packet overtaken by this many packets is lost.
const OVERTAKEN: u64 = 64;

/// The packets that left on a native path.
#[derive(Debug, Default)]
pub struct Native {
    /// Ranges of packets that are not known to have arrived: from, to.
    unconfirmed: VecDeque<(u64, u64)>,
    /// When the first unconfirmed packet left, or when a probe was last sent for it.
    since_ns: u64,
    /// Number of the first packet that left after the last probe: an ack of the probe must name all
    /// packets below it.
    asked: u64,
    /// When the path failed: packets not known to have arrived may be lost.
    doubted_ns: Option<u64>,
}

impl Native {
    /// True if data may leave natively in packet `number`.
    pub fn takes(&self, number: u64) -> bool {
        let first = self.unconfirmed.front().map_or(number, |stretch| stretch.0);
        let few = number - first < UNCONFIRMED_MAX && self.unconfirmed.len() < STRETCHES_MAX;
        few && self.doubted_ns.is_none()
    }

    /// Notes that `count` packets with data left, from `number` on. Returns true if a probe is due.
    pub fn left(&mut self, number: u64, count: u64, now: u64) -> bool {
        if self.unconfirmed.is_empty() {
            self.since_ns = now;
        }
        match self.unconfirmed.back_mut().filter(|last| last.1 == number) {
            Some(last) => last.1 += count,
            None => self.unconfirmed.push_back((number, number + count)),
        }
        number / ASK_EVERY != (number + count) / ASK_EVERY
    }

    /// Handles an ack. Returns true if a packet is lost. `sure`: the path is ordered and loses
    /// nothing until it fails.
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
        for &(from, to) in &self.unconfirmed {
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
        self.unconfirmed = left;
        if self.unconfirmed.is_empty() {
            self.doubted_ns = None;
        }
        lost
    }

    /// Notes that the path failed: packets that are not known to have arrived may be lost.
    pub fn doubt(&mut self, now: u64) {
        if !self.unconfirmed.is_empty() {
            self.doubted_ns.get_or_insert(now);
        }
    }

    /// True if all packets are known to have arrived.
    pub fn is_sure(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// When the next probe is due, or the wait for its answer ends. `native_timeout_ns`: how long
    /// to wait after a failure. `lossy`: the path loses packets while it works.
    pub fn due(&self, native_timeout_ns: u64, lossy: bool) -> Option<u64> {
        if self.unconfirmed.is_empty() {
            return None;
        }
        let asked = self.since_ns + ASK_NS;
        match self.doubted_ns {
            Some(at) => Some(asked.min(at + native_timeout_ns)),
            None => Some(asked).filter(|_| lossy),
        }
    }

    /// Notes a probe in packet `next` or later; returns true if the wait after a failure is over.
    pub fn serve(&mut self, now: u64, next: u64, native_timeout_ns: u64) -> bool {
        (self.since_ns, self.asked) = (now, next);
        self.doubted_ns
            .is_some_and(|at| now >= at + native_timeout_ns)
    }
}
