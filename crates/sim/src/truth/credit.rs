//! No sender goes beyond the credit that its receiver has told it, whatever was lost on the way,
//! and no receiver tells more than its window and what was sent to it.
//! (The fuzz targets take this file, too, without the rest of the simulator.)

use marline_proto::{FIRST_CREDIT, MESSAGE_OVERHEAD};
use marline_wire::{Frame, MsgHead, Packet};
use std::collections::BTreeSet;

/// Endpoints up to which pairs are watched: in larger clusters it would be their number, not the
/// nodes, that fills the memory.
const ENDPOINTS_MAX: u32 = 64;

/// The credit of one direction of a pair.
#[derive(Clone)]
struct Pair {
    /// Number of the first message that has not left, and those behind it that have (long ones
    /// wait where short ones pass).
    next: u32,
    ahead: BTreeSet<u32>,
    /// Credit that the messages which left have used, in bytes.
    used: u64,
    /// The most that the receiver has ever told, whether or not that arrived.
    told: u64,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair {
            next: 0,
            ahead: BTreeSet::new(),
            used: 0,
            told: FIRST_CREDIT,
        }
    }
}

impl Pair {
    /// True if the message has not left before.
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

/// Credit of all pairs.
pub struct Credits {
    /// By sender, then receiver.
    pairs: Vec<Pair>,
    /// Credit that a receiver may give a sender before anything comes, in bytes.
    window: u64,
}

impl Credits {
    /// Between nodes that may give each other this much, in the end.
    pub fn new(credit_bytes: u64) -> Credits {
        Credits {
            pairs: Vec::new(),
            window: credit_bytes.max(FIRST_CREDIT),
        }
    }

    /// Looks at a packet that leaves `src` for `dst`.
    pub fn leaves(&mut self, src: u32, dst: u32, packet: &Packet<'_>) -> Result<(), String> {
        if src.max(dst) >= ENDPOINTS_MAX {
            return Ok(());
        }
        for (frame, _) in packet.frames() {
            match frame {
                Frame::Hello(hello) => self.tell(src, dst, hello.credit())?,
                Frame::Credit { bytes } => self.tell(src, dst, bytes)?,
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

    /// `src` allows `dst` so much in all.
    fn tell(&mut self, src: u32, dst: u32, bytes: u64) -> Result<(), String> {
        let window = self.window;
        let pair = self.pair(dst, src);
        pair.told = pair.told.max(bytes);
        let most = pair.used + window;
        (bytes <= most)
            .then_some(())
            .ok_or_else(|| format!("allows {dst} to send {bytes} bytes, at most {most}"))
    }

    /// A message's head leaves; the first time it costs.
    fn charge(&mut self, src: u32, dst: u32, head: &MsgHead, eager: u64) -> Result<(), String> {
        let pair = self.pair(src, dst);
        if !pair.is_first(head.number) {
            return Ok(());
        }
        pair.used += eager + MESSAGE_OVERHEAD;
        let (used, told) = (pair.used, pair.told);
        (used <= told).then_some(()).ok_or_else(|| {
            let number = head.number;
            format!("message {number} to {dst} goes beyond credit: {used} of {told} bytes")
        })
    }
}
