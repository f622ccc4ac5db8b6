//! Sums that workers make of what is sent, and of what was read, as the engine sees them: which
//! memory was given to be summed, and that nobody reads it any more when its operation ends.

use crate::memory::op_table::Pieces;
use crate::memory::sum_slots::{Found, Job, SumSlots, SLOTS};
use crate::platform::clock::{Clock, MonotonicClock};
use crate::platform::fork::Generation;
use crate::platform::sync::Arc;
use marline_checksum::{Algorithm, Summer};

/// Time that a worker takes off the engine's hands has to be more than the engine spends on giving
/// the memory away, and than the memory's way to another core: with less per KiB, nothing is given.
const SLOW_NS_PER_KIB: u64 = 100;
/// This many sums in a row that took longer are no accident.
pub(crate) const SLOW_MIN: u32 = 8;

/// Parts of a message that workers sum ahead of the one that is wanted.
const AHEAD: u64 = 4;
/// A message of which less is left than this is summed by who sends it.
pub(crate) const AHEAD_MIN: u64 = 64 * 1024;

/// Calls a worker that may sleep.
pub(crate) type Call = dyn Fn() + Send + Sync;

/// Whose memory is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A send's, by its handle.
    Send(u32),
    /// Of a message that is read: index of the endpoint, and the node's name for it.
    Inbound(u32, u64),
}

/// A range of a message, and the sum that is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whose.
    pub(crate) of: Owner,
    /// Offset in the message.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) seed: u64,
}

/// See above.
pub(crate) struct Sums {
    slots: Arc<SumSlots>,
    call: Option<Box<Call>>,
    pub(crate) parts: [Option<Part>; SLOTS],
    /// Parts in slots.
    pub(crate) count: usize,
    /// Bytes whose sums workers made.
    pub(crate) bytes: u64,
    /// Own sums in a row that were slow enough for workers.
    slow: u32,
    generation: Generation,
}

impl Sums {
    /// No workers.
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

    /// From now on workers may come to these slots; `call` calls one that sleeps. `always`: they
    /// are given what the engine would sum as fast.
    pub(crate) fn share(&mut self, call: Box<Call>, always: bool) -> Arc<SumSlots> {
        self.call = Some(call);
        self.slow = if always { u32::MAX } else { 0 };
        self.slots.clone()
    }

    /// The sum of `len` bytes, which the engine makes by itself; notes how long that takes.
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

    /// Workers are there.
    #[inline]
    pub(crate) fn have_workers(&self) -> bool {
        self.slow >= SLOW_MIN && self.slots.have_workers()
    }

    /// There is something to sum: has workers come if they can, and says if they are there.
    #[inline]
    pub(crate) fn want_workers(&self) -> bool {
        if self.slow >= SLOW_MIN {
            self.slots.want();
        }
        self.have_workers()
    }

    /// Gives a part to the workers, `place` being where all of its operation's memory is, and
    /// `at` the part's offset there; `false`: there is no room, or it is in pieces.
    pub(crate) fn give(&mut self, part: Part, place: &Pieces, at: u64) -> bool {
        if self.find(&part).is_some() {
            return true;
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

    /// The sum of a part of a message that ends at `end`, if workers have made it. They are given
    /// what is wanted next of it: parts of `span` bytes, with these seeds.
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

    /// The sum of a part, if a worker has made it. What none has begun is taken back.
    pub(crate) fn take(&mut self, part: &Part) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let slot = self.find(part)?;
        self.take_slot(slot).ok().flatten()
    }

    /// `Err`: a worker reads the memory.
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

    /// Forgets the parts of a message before an offset that were not asked for, as far as nobody
    /// reads them now.
    pub(crate) fn pass(&mut self, of: Owner, offset: u64) {
        for slot in 0..SLOTS {
            let passed = |part: &Part| part.of == of && part.offset < offset;
            if self.parts[slot].as_ref().is_some_and(passed) {
                let _ = self.take_slot(slot);
            }
        }
    }

    /// Returns whether a worker is at a part that was given, or (`may_begin`) might still begin it.
    pub(crate) fn is_under_way(&self, part: &Part, may_begin: bool) -> bool {
        let slot = self.find(part);
        slot.is_some_and(|slot| self.slots.is_under_way(slot, may_begin))
    }

    /// No worker reads the memory of some owners after this. One that does has begun: it is
    /// over in the time that the sum of one part takes.
    pub(crate) fn withdraw(&mut self, of: impl Fn(Owner) -> bool) {
        if self.count == 0 || self.generation.is_forked() {
            return; // a child has none of its parent's workers
        }
        for slot in 0..SLOTS {
            if self.parts[slot].as_ref().is_some_and(|part| of(part.of)) {
                while self.take_slot(slot).is_err() {
                    // It may wait for this very core.
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

/// The sum of a job.
pub(crate) fn sum_of_job(job: &Job) -> u64 {
    let base = std::ptr::with_exposed_provenance(job.base as usize);
    // SAFETY: user memory lent to an operation that does not end before the job has (`withdraw`).
    // What a peer still writes there changes no more than the sum.
    let bytes = unsafe { std::slice::from_raw_parts(base, job.len as usize) };
    let algorithm = Algorithm::from_u8(job.algorithm as u8).unwrap_or(Algorithm::None);
    let mut summer = Summer::new(algorithm, job.seed);
    summer.update_far(bytes);
    summer.finish()
}
