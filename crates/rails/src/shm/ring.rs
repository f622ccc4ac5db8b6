//! A ring of bytes from one producer to one consumer, in memory that two processes share.
//!
//! A frame is a word, its head, and a body. The word is 0 until the frame is there, so that the
//! consumer finds a short frame with the one cache line that it waits for:
//!
//! ```text
//!   | word | body .......... pad | word | body .. pad | 0 |   room   |
//!                                  ^ consumer            ^ producer
//! ```
//!
//! Before a producer publishes a frame it writes the 0 behind it. The consumer says how far it has
//! come in a word of its own, which the producer reads only when it seems to have no room.
//!
//! Neither believes the other: a position that cannot be is an error, and no position leads out of
//! the memory ([`Memory`] reduces each to the length of the ring).

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Bytes of a frame's head.
pub(crate) const HEAD_LEN: u64 = 8;

/// The other side has written what it never would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The memory of a ring. Positions count all bytes ever, are reduced to the ring's length, and
/// bytes from the end go on at its start.
pub(crate) trait Memory {
    /// Bytes of the ring, a multiple of 16.
    const LEN: u64;
    /// The word at a position, which is a multiple of eight.
    fn word(&self, at: u64) -> &AtomicU64;
    /// How far the consumer has come.
    fn consumed(&self) -> &AtomicU64;
    /// Not 0: the producer waits for room.
    fn waits(&self) -> &AtomicU32;
    /// Writes bytes, at most a ring's length.
    fn put(&self, at: u64, bytes: &[u8]);
    /// Reads bytes, at most a ring's length.
    fn get(&self, at: u64, out: &mut [u8]);
}

/// Largest body in a ring: half of it, so that a frame always finds room once the ring is empty.
#[inline]
pub(crate) const fn body_max<M: Memory>() -> u64 {
    M::LEN / 2
}

/// Bytes in the ring of a frame with so large a body.
#[inline]
fn frame_len(body_len: u64) -> u64 {
    HEAD_LEN + body_len.next_multiple_of(HEAD_LEN)
}

/// The producer's place in a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    at: u64,
    /// Up to here there is room, as far as is known.
    room_to: u64,
}

impl Producer {
    /// At the start of a ring in which nothing was written.
    pub(crate) fn new<M: Memory>() -> Producer {
        Producer {
            at: 0,
            room_to: M::LEN,
        }
    }

    /// Where the body of the next frame goes, if there is room for `body_len` bytes of it.
    #[inline]
    pub(crate) fn body<M: Memory>(
        &mut self,
        memory: &M,
        body_len: u64,
    ) -> Result<Option<u64>, Garbled> {
        if body_len > body_max::<M>() {
            return Ok(None);
        }
        // The frame, and the 0 behind it.
        let end = self.at + frame_len(body_len) + HEAD_LEN;
        if end > self.room_to {
            let consumed = memory.consumed().load(Ordering::Acquire);
            match self.at.checked_sub(consumed) {
                Some(waits) if waits <= M::LEN => self.room_to = consumed + M::LEN,
                _ => return Err(Garbled),
            }
        }
        Ok((end <= self.room_to).then_some(self.at + HEAD_LEN))
    }

    /// As [`Producer::body`]; without room the consumer is asked to tell when there is some.
    #[cold]
    pub(crate) fn body_or_wait<M: Memory>(
        &mut self,
        memory: &M,
        body_len: u64,
    ) -> Result<Option<u64>, Garbled> {
        memory.waits().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let body = self.body(memory, body_len)?;
        if body.is_some() {
            memory.waits().store(0, Ordering::Relaxed);
        }
        Ok(body)
    }

    /// Publishes the frame whose body was written where [`Producer::body`] said. The word is not 0.
    #[inline]
    pub(crate) fn publish(&mut self, memory: &impl Memory, word: u64, body_len: u64) {
        debug_assert!(word != 0);
        let next = self.at + frame_len(body_len);
        memory.word(next).store(0, Ordering::Relaxed);
        memory.word(self.at).store(word, Ordering::Release);
        self.at = next;
    }
}

/// The consumer's place in a ring.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    at: u64,
    /// Of which it has told the producer.
    told: u64,
    /// Where it looked last whether the producer waits.
    looked: u64,
}

impl Consumer {
    /// The word of the next frame; 0: there is none yet.
    #[inline]
    pub(crate) fn word(&self, memory: &impl Memory) -> u64 {
        memory.word(self.at).load(Ordering::Acquire)
    }

    /// Where the body of that frame is.
    #[inline]
    pub(crate) fn body(&self) -> u64 {
        self.at + HEAD_LEN
    }

    /// Goes on to the next frame: of this one's body nothing is read any more.
    #[inline]
    pub(crate) fn advance(&mut self, body_len: u64) {
        self.at += frame_len(body_len);
    }

    /// Gives the producer the room of all frames that were passed. `true`: it waits for that, and
    /// is to be told.
    ///
    /// A producer that waits has seen half of the ring full. So it is enough to look for it once in
    /// a quarter, and the fence that this takes is not paid for each short frame.
    #[inline]
    pub(crate) fn release<M: Memory>(&mut self, memory: &M) -> bool {
        if self.told == self.at {
            return false;
        }
        memory.consumed().store(self.at, Ordering::Release);
        self.told = self.at;
        if self.at - self.looked < M::LEN / 4 {
            return false;
        }
        self.looked = self.at;
        fence(Ordering::SeqCst);
        let waits = memory.waits();
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0
    }
}
