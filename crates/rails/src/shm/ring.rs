//! A ring of bytes from one producer to one consumer, in shared memory.
//!
//! A frame is a word (its head) and a body. The word is 0 until the frame is complete, so that the
//! consumer finds a short frame in the cache line that it polls:
//!
//! ```text
//!   | word | body .......... pad | word | body .. pad | 0 |   room   |
//!                                  ^ consumer            ^ producer
//! ```
//!
//! Before publishing a frame the producer writes the 0 after it. The consumer publishes its
//! position in a separate word, which the producer reads only when it seems to have no room.
//!
//! Neither side trusts the other: an impossible position is an error, and no position leads outside
//! the memory ([`Memory`] reduces each modulo the ring's length).

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Bytes of a frame's head.
pub(crate) const HEAD_LEN: u64 = 8;

/// The other side has written an impossible value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The memory of a ring. Positions count all bytes ever written and are reduced modulo the ring's
/// length; byte ranges wrap around.
pub(crate) trait Memory {
    /// Bytes of the ring, a multiple of 16.
    const LEN: u64;
    /// The word at a position, which is a multiple of eight.
    fn word(&self, at: u64) -> &AtomicU64;
    /// The consumer's position.
    fn consumed(&self) -> &AtomicU64;
    /// Not 0 while the producer waits for room.
    fn waits(&self) -> &AtomicU32;
    /// Writes bytes, at most a ring's length.
    fn put(&self, at: u64, bytes: &[u8]);
    /// Reads bytes, at most a ring's length.
    fn get(&self, at: u64, out: &mut [u8]);
}

/// Largest body: half of the ring, so that every frame fits once the ring is empty.
#[inline]
pub(crate) const fn body_max<M: Memory>() -> u64 {
    M::LEN / 2
}

/// Bytes that a frame with this body occupies.
#[inline]
fn frame_len(body_len: u64) -> u64 {
    HEAD_LEN + body_len.next_multiple_of(HEAD_LEN)
}

/// The producer's state.
#[derive(Debug)]
pub(crate) struct Producer {
    at: u64,
    /// The position up to which there is room, as last known.
    room_to: u64,
}

impl Producer {
    /// At the start of an unused ring.
    pub(crate) fn new<M: Memory>() -> Producer {
        Producer {
            at: 0,
            room_to: M::LEN,
        }
    }

    /// The position for the next frame's body, if there is room for `body_len` bytes.
    #[inline]
    pub(crate) fn body<M: Memory>(
        &mut self,
        memory: &M,
        body_len: u64,
    ) -> Result<Option<u64>, Garbled> {
        if body_len > body_max::<M>() {
            return Ok(None);
        }
        // Room for the frame, and for the 0 that marks its end.
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

    /// Like [`Producer::body`]; without room, asks the consumer for a notification of new room.
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

    /// Publishes the frame whose body was written at [`Producer::body`]. The word must not be 0.
    #[inline]
    pub(crate) fn publish(&mut self, memory: &impl Memory, word: u64, body_len: u64) {
        debug_assert!(word != 0);
        let next = self.at + frame_len(body_len);
        memory.word(next).store(0, Ordering::Relaxed);
        memory.word(self.at).store(word, Ordering::Release);
        self.at = next;
    }
}

/// The consumer's state.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    at: u64,
    /// The position last published to the producer.
    published: u64,
    /// The position at the last check whether the producer waits.
    looked: u64,
}

impl Consumer {
    /// The word of the next frame; 0 if there is none yet.
    #[inline]
    pub(crate) fn word(&self, memory: &impl Memory) -> u64 {
        memory.word(self.at).load(Ordering::Acquire)
    }

    /// The position of the next frame's body.
    #[inline]
    pub(crate) fn body(&self) -> u64 {
        self.at + HEAD_LEN
    }

    /// Advances to the next frame; this frame's body may be overwritten afterwards.
    #[inline]
    pub(crate) fn advance(&mut self, body_len: u64) {
        self.at += frame_len(body_len);
    }

    /// Returns the room of all passed frames to the producer. Returns `true` if the producer waits
    /// for room and must be notified.
    ///
    /// A producer that waits has seen at least half of the ring full, so a check once per quarter
    /// of the ring suffices, and spares short frames the fence.
    #[inline]
    pub(crate) fn release<M: Memory>(&mut self, memory: &M) -> bool {
        if self.published == self.at {
            return false;
        }
        memory.consumed().store(self.at, Ordering::Release);
        self.published = self.at;
        if self.at - self.looked < M::LEN / 4 {
            return false;
        }
        self.looked = self.at;
        fence(Ordering::SeqCst);
        let waits = memory.waits();
        waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0
    }
}
