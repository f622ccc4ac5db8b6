//! A ring of datagrams that the processes of a host share, so that each group datagram is fetched
//! from the kernel once: a process that polls and finds the ring empty reads the socket and puts
//! the result into the ring, from which all others take it.
//!
//! There is no dedicated reader. The ring's lock is held during a copy, never during a system call,
//! so a process that is descheduled in a poll does not block others. A frame is two words (length
//! with flags, and source) and the datagram:
//!
//! ```text
//!   | word | source | datagram .. pad | word | source | datagram .. pad |  free
//!          ^ a process's position                                       ^ head
//! ```
//!
//! A slow reader is overtaken: the writer does not wait. The writer publishes its limit before it
//! writes, so that a reader that copied a frame can check afterwards whether the frame was intact.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Bytes of a frame's two words.
pub(crate) const HEAD_LEN: u64 = 16;
/// Maximum of processes that share a ring: each has a bit.
pub(crate) const SLOTS: u32 = 64;

/// Bit of a frame's word: the datagram may be a GRO batch.
const JOINED: u64 = 1 << 31;

/// The memory of a ring. Positions count all bytes ever written and are reduced modulo its length.
pub(crate) trait HostMemory {
    /// Largest datagram or GRO batch in bytes.
    const BODY_MAX: u64;
    /// Bytes of the ring: several times `BODY_MAX`.
    const LEN: u64;
    /// The writer's slot plus 1; 0 without a writer.
    fn lock(&self) -> &AtomicU32;
    /// The end of the published frames.
    fn head(&self) -> &AtomicU64;
    /// The limit up to which the writer may be writing.
    fn claimed(&self) -> &AtomicU64;
    /// Bits of the sleeping processes' slots.
    fn sleepers(&self) -> &AtomicU64;
    /// The word at a position, which is a multiple of eight.
    fn word(&self, at: u64) -> &AtomicU64;
    /// Writes bytes, at most `BODY_MAX`.
    fn put(&self, at: u64, bytes: &[u8]);
    /// Reads bytes, at most `BODY_MAX`.
    fn get(&self, at: u64, out: &mut [u8]);
}

/// Bytes that a datagram's frame occupies.
#[inline]
fn frame_len(body_len: u64) -> u64 {
    HEAD_LEN + body_len.next_multiple_of(8)
}

/// Takes the writer's lock; the error is the slot of the holder.
#[inline]
pub(crate) fn try_lock(memory: &impl HostMemory, slot: u32) -> Result<(), u32> {
    let lock = memory.lock();
    let taken = match lock.load(Ordering::Relaxed) {
        0 => lock.compare_exchange(0, slot + 1, Ordering::Acquire, Ordering::Relaxed),
        holder => Err(holder),
    };
    taken.map(|_| ()).map_err(|holder| holder.saturating_sub(1))
}

/// Takes the lock over from a process that ended. Slots are never reused, so no other process has
/// this one.
#[cold]
pub(crate) fn take_over(memory: &impl HostMemory, gone: u32, slot: u32) -> bool {
    let (from, to) = (gone.wrapping_add(1), slot + 1);
    let lock = memory.lock();
    lock.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Releases the lock.
#[inline]
pub(crate) fn unlock(memory: &impl HostMemory) {
    memory.lock().store(0, Ordering::Release);
}

/// Puts a datagram into the ring; the caller holds the lock.
#[inline]
pub(crate) fn publish<M: HostMemory>(memory: &M, frame: &Frame, bytes: &[u8]) {
    let at = memory.head().load(Ordering::Relaxed);
    let next = at.wrapping_add(frame_len(bytes.len() as u64));
    memory.claimed().store(next, Ordering::Relaxed);
    fence(Ordering::Release); // a reader that sees the writes below also sees this store
    let joined = if frame.joined { JOINED } else { 0 };
    let word = bytes.len() as u64 | joined | u64::from(frame.reader) << 32;
    memory.word(at).store(word, Ordering::Relaxed);
    memory
        .word(at.wrapping_add(8))
        .store(frame.source, Ordering::Relaxed);
    memory.put(at.wrapping_add(HEAD_LEN), bytes);
    memory.head().store(next, Ordering::Release);
}

/// After a publication: the bits of the sleeping processes to wake. Each is reported once.
#[inline]
pub(crate) fn call_sleepers(memory: &impl HostMemory, slot: u32) -> u64 {
    fence(Ordering::SeqCst);
    let others = memory.sleepers().load(Ordering::Relaxed) & !(1 << slot);
    match others {
        0 => 0,
        _ => others & memory.sleepers().fetch_and(!others, Ordering::Relaxed),
    }
}

/// Registers for a wake-up. The caller must look for earlier frames afterwards.
#[cold]
pub(crate) fn register_sleeper(memory: &impl HostMemory, slot: u32) {
    memory.sleepers().fetch_or(1 << slot, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Cancels the registration for a wake-up.
#[cold]
pub(crate) fn wake_up(memory: &impl HostMemory, slot: u32) {
    memory.sleepers().fetch_and(!(1 << slot), Ordering::Relaxed);
}

/// A datagram in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) len: u32,
    /// The datagram may be a GRO batch.
    pub(crate) joined: bool,
    /// The slot of the process that read it.
    pub(crate) reader: u32,
    /// The datagram's source.
    pub(crate) source: u64,
}

/// The answer to [`Place::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is no frame yet.
    Nothing,
    /// Frames were overwritten and are lost; reading continues at the newest.
    Overtaken,
    /// A frame whose datagram was copied.
    Frame(Frame),
}

/// A process's position in a ring.
#[derive(Debug)]
pub(crate) struct Place {
    at: u64,
}

impl Place {
    /// At the next frame to be published.
    pub(crate) fn new(memory: &impl HostMemory) -> Place {
        Place {
            at: memory.head().load(Ordering::Acquire),
        }
    }

    /// Skips frames that are not `wanted`; returns whether no wanted frame is left.
    #[cold]
    pub(crate) fn is_drained(
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

    /// Copies the next datagram, of at most `out.len()` bytes.
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

    /// Reads the frame at the position, with its datagram if `out` is given; `None` if it was
    /// overwritten.
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
