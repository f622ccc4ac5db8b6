//! The engine's view of checksums that worker threads compute over sent and read memory: the parts
//! handed out, and the guarantee that no worker reads memory after its operation has ended.

use crate::memory::op_table::Pieces;
use crate::memory::sum_slots::{Found, Job, SumSlots, SLOTS};
use crate::platform::clock::{Clock, MonotonicClock};
use crate::platform::fork::Generation;
use crate::platform::sync::Arc;
use marline_checksum::{Algorithm, Summer};

/// Least cost of a checksum that justifies workers. For cheaper checksums, handing the memory to
/// another core costs as much.
const SLOW_NS_PER_KIB: u64 = 100;
/// Number of consecutive slow checksums that rules out chance.
pub(crate) const SLOW_MIN: u32 = 8;

/// Parts of a message that workers sum ahead of the part that is needed.
const AHEAD: u64 = 4;
/// The sender itself sums the rest of a message shorter than this.
pub(crate) const AHEAD_MIN: u64 = 64 * 1024;

/// Wakes a worker that may be asleep.
pub(crate) type Call = dyn Fn() + Send + Sync;

/// The operation whose memory is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A send, by its handle.
    Send(u32),
    /// A message that is being read: index of its endpoint, and the node's name for it.
    Inbound(u32, u64),
}

/// A range of a message to sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The operation.
    pub(crate) of: Owner,
    /// Offset in the message.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) seed: u64,
}

/// The engine's parts in workers' slots.
pub(crate) struct Sums {
    slots: Arc<SumSlots>,
    call: Option<Box<Call>>,
    pub(crate) parts: [Option<Part>; SLOTS],
    /// Number of parts in slots.
    pub(crate) count: usize,
    /// Bytes summed by workers.
    pub(crate) bytes: u64,
    /// Number of consecutive checksums by the engine that were slow enough for workers.
    slow: u32,
    generation: Generation,
}

impl Sums {
    /// Starts without workers.
    pub(crate) fn new() -> Sums {
        Sums {
            slots: Arc::new(SumSlots::new()),
            call: None,
            parts: [None; SLOTS],
            count: 0,
            bytes: 0,
            slow: 0,
            generation: Generation::current(),
        }
    }

    /// Opens the slots to workers; `call` wakes a sleeping worker. `always`: hand out parts even if
    /// the engine itself is as fast.
    pub(crate) fn share(&mut self, call: Box<Call>, always: bool) -> Arc<SumSlots> {
        self.call = Some(call);
        self.slow = if always { u32::MAX } else { 0 };
        self.slots.clone()
    }

    /// Computes the checksum of `len` bytes in this thread, and measures its cost.
    #[inline]
    pub(crate) fn own(&mut self, len: usize, sum: impl FnOnce() -> u64) -> u64 {
        if self.call.is_none() || self.slow == u32::MAX {
            return sum();
        }
        let begun_ns = MonotonicClock.now_ns();
        let sum = sum();
        let took_ns = MonotonicClock.now_ns() - begun_ns;
        let slow = took_ns * 1024 > len as u64 * SLOW_NS_PER_KIB;
        self.slow = if slow {
            (self.slow + 1).min(SLOW_MIN)
        } else {
            0
        };
        sum
    }

    /// True if workers are available and worthwhile.
    #[inline]
    pub(crate) fn have_workers(&self) -> bool {
        self.slow >= SLOW_MIN && self.slots.have_workers()
    }

    /// Requests workers if they are worthwhile, and returns whether some are available.
    #[inline]
    pub(crate) fn want_workers(&self) -> bool {
        if self.slow >= SLOW_MIN {
            self.slots.want();
        }
        self.have_workers()
    }

    /// Hands a part to the workers; `place` is the memory of its whole operation and `at` the
    /// part's offset there. `false`: no slot is free, or the part is not contiguous.
    pub(crate) fn give(&mut self, part: Part, place: &Pieces, at: u64) -> bool {
        if self.find(&part).is_some() {
            return true;
        }
        // Workers have no keys, and a sum with a key is too fast to be worth one.
        if part.algorithm.is_keyed() {
            return false;
        }
        let Some(base) = place.whole(at, part.len) else {
            return false;
        };
        let Some(slot) = self.parts.iter().position(Option::is_none) else {
            return false;
        };
        let job = Job {
            base: base.expose_provenance() as u64,
            len: part.len as u64,
            algorithm: part.algorithm as u64,
            seed: part.seed,
        };
        (self.parts[slot], self.count) = (Some(part), self.count + 1);
        if self.slots.post(slot, &job) {
            self.call.iter().for_each(|call| call());
        }
        true
    }

    /// The checksum of a part of a message that ends at `end`, if workers have computed it. Hands
    /// out the next parts: `span` bytes each, with these seeds.
    pub(crate) fn take_ahead(
        &mut self,
        part: &Part,
        (span, end): (u64, u64),
        place: &Pieces,
        seed_of: impl Fn(u64, usize) -> u64,
    ) -> Option<u64> {
        let next = part.offset + part.len as u64;
        let more = end.saturating_sub(next) >= AHEAD_MIN && self.want_workers();
        let sum = self.take(part);
        self.pass(part.of, next);
        for n in 0..AHEAD * u64::from(more) {
            let offset = next + n * span;
            let len = span.min(end.saturating_sub(offset)) as usize;
            let seed = seed_of(offset, len);
            let ahead = Part {
                offset,
                len,
                seed,
                ..*part
            };
            if len < AHEAD_MIN as usize / 4 || !self.give(ahead, place, offset) {
                break;
            }
        }
        sum
    }

    #[inline]
    fn find(&self, part: &Part) -> Option<usize> {
        self.parts.iter().position(|one| one.as_ref() == Some(part))
    }

    /// The checksum of a part, if a worker has computed it. Withdraws a part that no worker has
    /// begun.
    pub(crate) fn take(&mut self, part: &Part) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let slot = self.find(part)?;
        self.take_slot(slot).ok().flatten()
    }

    /// Takes a slot back; `Err`: a worker is reading the memory.
    fn take_slot(&mut self, slot: usize) -> Result<Option<u64>, ()> {
        let sum = match self.slots.take(slot) {
            Found::Busy => return Err(()),
            Found::Nothing => None,
            Found::Sum(sum) => Some(sum),
        };
        if let Some(part) = self.parts[slot].take() {
            self.count -= 1;
            self.bytes += sum.map_or(0, |_| part.len as u64);
        }
        Ok(sum)
    }

    /// Discards the unused parts of a message before an offset, except parts that a worker is
    /// reading.
    pub(crate) fn pass(&mut self, of: Owner, offset: u64) {
        for slot in 0..SLOTS {
            let passed = |part: &Part| part.of == of && part.offset < offset;
            if self.parts[slot].as_ref().is_some_and(passed) {
                let _ = self.take_slot(slot);
            }
        }
    }

    /// True if a worker is reading a part or, with `may_begin`, may still begin it.
    pub(crate) fn is_under_way(&self, part: &Part, may_begin: bool) -> bool {
        let slot = self.find(part);
        slot.is_some_and(|slot| self.slots.is_under_way(slot, may_begin))
    }

    /// Ends all workers' reads of some operations' memory. Waits for reads that have begun, at most
    /// as long as the checksum of one part takes.
    pub(crate) fn withdraw(&mut self, of: impl Fn(Owner) -> bool) {
        if self.count == 0 || self.generation.is_forked() {
            return; // a forked child has no workers
        }
        for slot in 0..SLOTS {
            if self.parts[slot].as_ref().is_some_and(|part| of(part.of)) {
                while self.take_slot(slot).is_err() {
                    // The worker may need this core.
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        self.withdraw(|_| true);
    }
}

/// Computes the checksum of a job.
pub(crate) fn sum_of_job(job: &Job) -> u64 {
    let base = std::ptr::with_exposed_provenance(job.base as usize);
    // SAFETY: the memory is lent to an operation that does not end before its job (`withdraw`). A
    // concurrent write of a peer changes no more than the sum.
    let bytes = unsafe { std::slice::from_raw_parts(base, job.len as usize) };
    let algorithm = Algorithm::from_u8(job.algorithm as u8).unwrap_or(Algorithm::None);
    let mut summer = Summer::new(algorithm, job.seed);
    summer.update_far(bytes);
    summer.finish()
}
