//! Checks credit: no sender exceeds the credit granted by its receiver, whatever packets are lost,
//! and no receiver grants more than its window plus the bytes sent to it. (The fuzz targets use
//! this file without the rest of the simulator.)

use marline_proto::{FIRST_CREDIT, MESSAGE_OVERHEAD};
use marline_wire::{Frame, MsgHead, Packet};
use std::collections::BTreeSet;

/// Endpoints up to which pairs are checked; in larger clusters the pairs' number would fill memory.
const ENDPOINTS_MAX: u32 = 64;

/// The credit in one direction of a pair.
#[derive(Clone)]
struct Pair {
    /// Number of the first unsent message, and the messages after it that were sent (long messages
    /// wait while short ones pass).
    next: u32,
    ahead: BTreeSet<u32>,
    /// Credit used by sent messages, in bytes.
    used: u64,
    /// The most that the receiver ever granted, even if the frame did not arrive.
    allowed: u64,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair {
            next: 0,
            ahead: BTreeSet::new(),
            used: 0,
            allowed: FIRST_CREDIT,
        }
    }
}

impl Pair {
    /// True if the message has not been sent before.
    fn is_first(&mut self, number: u32) -> bool {
        if number > self.next {
            return self.ahead.insert(number);
        }
        let first = number == self.next;
        self.next += first as u32;
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        first
    }
}

/// The credit of all pairs.
pub struct Credits {
    /// By sender, then receiver.
    pairs: Vec<Pair>,
    /// Initial credit per sender, in bytes.
    window: u64,
}

impl Credits {
    /// Credit among nodes that may grant each other this much in total.
    pub fn new(credit_bytes: u64) -> Credits {
        Credits {
            pairs: Vec::new(),
            window: credit_bytes.max(FIRST_CREDIT),
        }
    }

    /// Checks a packet that `src` sends to `dst`.
    pub fn leaves(&mut self, src: u32, dst: u32, packet: &Packet<'_>) -> Result<(), String> {
        if src.max(dst) >= ENDPOINTS_MAX {
            return Ok(());
        }
        for (frame, _) in packet.frames() {
            match frame {
                Frame::Hello(hello) => self.allow(src, dst, hello.credit())?,
                Frame::Credit { bytes } => self.allow(src, dst, bytes)?,
                Frame::Eager(eager) => self.charge(src, dst, &eager.head, eager.head.total)?,
                Frame::Rts(rts) => self.charge(src, dst, &rts.head, 0)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The credit of `src` for `dst`.
    fn pair(&mut self, src: u32, dst: u32) -> &mut Pair {
        let at = (src * ENDPOINTS_MAX + dst) as usize;
        if self.pairs.len() <= at {
            self.pairs.resize(at + 1, Pair::default());
        }
        &mut self.pairs[at]
    }

    /// `src` grants `dst` this much in total.
    fn allow(&mut self, src: u32, dst: u32, bytes: u64) -> Result<(), String> {
        let window = self.window;
        let pair = self.pair(dst, src);
        pair.allowed = pair.allowed.max(bytes);
        let most = pair.used + window;
        (bytes <= most)
            .then_some(())
            .ok_or_else(|| format!("allows {dst} to send {bytes} bytes, at most {most}"))
    }

    /// A message's head is sent; the first transmission uses credit.
    fn charge(&mut self, src: u32, dst: u32, head: &MsgHead, eager: u64) -> Result<(), String> {
        let pair = self.pair(src, dst);
        if !pair.is_first(head.number) {
            return Ok(());
        }
        pair.used += eager + MESSAGE_OVERHEAD;
        let (used, allowed) = (pair.used, pair.allowed);
        (used <= allowed).then_some(()).ok_or_else(|| {
            let number = head.number;
            format!("message {number} to {dst} goes beyond credit: {used} of {allowed} bytes")
        })
    }
}
