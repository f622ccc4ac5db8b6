//! A ring of datagrams that the processes of a host share, so that each datagram of a group is
//! fetched from the kernel once: whoever looks and finds nothing reads the socket, and puts what it
//! got into the ring, from where all others take it.
//!
//! Nobody is the reader. The lock of the ring is held for a copy, never while the kernel is asked:
//! a process that loses its processor in a poll keeps nobody. A frame is two words (what it is, and
//! where it came from), then the datagram:
//!
//! ```text
//!   | word | source | datagram .. pad | word | source | datagram .. pad |  free
//!          ^ someone's place                                            ^ head
//! ```
//!
//! Nobody waits for those who are late: they are overtaken. The writer says how far it may write
//! before it does, so that whoever copied a frame finds out afterwards if it was still whole.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Bytes of a frame's two words.
pub(crate) const HEAD_LEN: u64 = 16;
/// Processes that share a ring: each has a bit.
pub(crate) const SLOTS: u32 = 64;

/// Bit of a frame's word: the kernel may have joined several datagrams.
const JOINED: u64 = 1 << 31;

/// The memory of a ring. Positions count all bytes ever, and are reduced to its length.
pub(crate) trait HostMemory {
    /// Largest datagram, with those that the kernel has joined to it.
    const BODY_MAX: u64;
    /// Bytes of the ring: several times that.
    const LEN: u64;
    /// The slot of the writer and 1; 0: nobody writes.
    fn lock(&self) -> &AtomicU32;
    /// Up to here there are frames.
    fn head(&self) -> &AtomicU64;
    /// Up to here something may be written.
    fn claimed(&self) -> &AtomicU64;
    /// Those who sleep, as bits.
    fn sleepers(&self) -> &AtomicU64;
    /// The word at a position, which is a multiple of eight.
    fn word(&self, at: u64) -> &AtomicU64;
    /// Writes bytes, at most `BODY_MAX`.
    fn put(&self, at: u64, bytes: &[u8]);
    /// Reads bytes, at most `BODY_MAX`.
    fn get(&self, at: u64, out: &mut [u8]);
}

/// Bytes in the ring of a datagram's frame.
#[inline]
fn frame_len(body_len: u64) -> u64 {
    HEAD_LEN + body_len.next_multiple_of(8)
}

/// Becomes the writer; else the slot of the process that is.
#[inline]
pub(crate) fn try_lock(memory: &impl HostMemory, slot: u32) -> Result<(), u32> {
    let lock = memory.lock();
    let taken = match lock.load(Ordering::Relaxed) {
        0 => lock.compare_exchange(0, slot + 1, Ordering::Acquire, Ordering::Relaxed),
        holder => Err(holder),
    };
    taken.map(|_| ()).map_err(|holder| holder.saturating_sub(1))
}

/// Becomes the writer in place of one whose process is gone. Slots are given once, so that nobody
/// else has this one.
#[cold]
pub(crate) fn take_over(memory: &impl HostMemory, gone: u32, slot: u32) -> bool {
    let (from, to) = (gone.wrapping_add(1), slot + 1);
    let lock = memory.lock();
    lock.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Is the writer no longer.
#[inline]
pub(crate) fn unlock(memory: &impl HostMemory) {
    memory.lock().store(0, Ordering::Release);
}

/// Puts a datagram into the ring; the lock is held.
#[inline]
pub(crate) fn publish<M: HostMemory>(memory: &M, frame: &Frame, bytes: &[u8]) {
    let at = memory.head().load(Ordering::Relaxed);
    let next = at.wrapping_add(frame_len(bytes.len() as u64));
    memory.claimed().store(next, Ordering::Relaxed);
    fence(Ordering::Release); // whoever sees what is written next sees this as well
    let joined = if frame.joined { JOINED } else { 0 };
    let word = bytes.len() as u64 | joined | u64::from(frame.reader) << 32;
    memory.word(at).store(word, Ordering::Relaxed);
    memory
        .word(at.wrapping_add(8))
        .store(frame.source, Ordering::Relaxed);
    memory.put(at.wrapping_add(HEAD_LEN), bytes);
    memory.head().store(next, Ordering::Release);
}

/// After something was published: those who sleep and are to be woken, as bits. Each is told once.
#[inline]
pub(crate) fn call_sleepers(memory: &impl HostMemory, slot: u32) -> u64 {
    fence(Ordering::SeqCst);
    let others = memory.sleepers().load(Ordering::Relaxed) & !(1 << slot);
    match others {
        0 => 0,
        _ => others & memory.sleepers().fetch_and(!others, Ordering::Relaxed),
    }
}

/// Wants to be told of what is published from now on. What was before has to be looked for then.
#[cold]
pub(crate) fn fall_asleep(memory: &impl HostMemory, slot: u32) {
    memory.sleepers().fetch_or(1 << slot, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Wants to be told no longer.
#[cold]
pub(crate) fn wake_up(memory: &impl HostMemory, slot: u32) {
    memory.sleepers().fetch_and(!(1 << slot), Ordering::Relaxed);
}

/// A datagram in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) len: u32,
    /// The kernel may have joined several.
    pub(crate) joined: bool,
    /// The slot of the process that read it.
    pub(crate) reader: u32,
    /// Its source.
    pub(crate) source: u64,
}

/// The answer to [`Place::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing is there yet.
    Nothing,
    /// Frames were overwritten: they are lost, and what comes is next.
    Overtaken,
    /// A frame, whose datagram was copied.
    Frame(Frame),
}

/// A process's place in a ring.
#[derive(Debug)]
pub(crate) struct Place {
    at: u64,
}

impl Place {
    /// At what is published next.
    pub(crate) fn new(memory: &impl HostMemory) -> Place {
        Place {
            at: memory.head().load(Ordering::Acquire),
        }
    }

    /// Nothing is there that it has not had, but for what is not `wanted`, which it passes.
    #[cold]
    pub(crate) fn is_dry(
        &mut self,
        memory: &impl HostMemory,
        wanted: impl Fn(&Frame) -> bool,
    ) -> bool {
        while memory.head().load(Ordering::Acquire) != self.at {
            match self.copy(memory, None) {
                Some(frame) if !wanted(&frame) => {
                    self.at = self.at.wrapping_add(frame_len(frame.len as u64));
                }
                _ => return false,
            }
        }
        true
    }

    /// Copies the next datagram, which has at most so many bytes as `out`.
    pub(crate) fn next<M: HostMemory>(&mut self, memory: &M, out: &mut [u8]) -> Next {
        let head = memory.head().load(Ordering::Acquire);
        let ahead = head.wrapping_sub(self.at);
        if ahead == 0 {
            return Next::Nothing;
        }
        let frame = (ahead <= M::LEN)
            .then(|| self.copy(memory, Some(out)))
            .flatten();
        let len = frame.map_or(0, |frame| frame_len(frame.len as u64));
        match frame.filter(|_| len <= ahead) {
            Some(frame) => {
                self.at = self.at.wrapping_add(len);
                Next::Frame(frame)
            }
            None => {
                self.at = memory.head().load(Ordering::Acquire);
                Next::Overtaken
            }
        }
    }

    /// The frame at its place, if that is whole, and its datagram for who wants it.
    fn copy<M: HostMemory>(&self, memory: &M, out: Option<&mut [u8]>) -> Option<Frame> {
        let word = memory.word(self.at).load(Ordering::Relaxed);
        let source = memory.word(self.at.wrapping_add(8)).load(Ordering::Relaxed);
        let len = (word & (JOINED - 1)) as u32;
        if let Some(out) = out {
            let body = out.get_mut(..len as usize)?;
            memory.get(self.at.wrapping_add(HEAD_LEN), body);
        }
        fence(Ordering::Acquire);
        let claimed = memory.claimed().load(Ordering::Relaxed);
        (claimed.wrapping_sub(self.at) <= M::LEN).then_some(Frame {
            len,
            joined: word & JOINED != 0,
            reader: (word >> 32) as u32,
            source,
        })
    }
}
