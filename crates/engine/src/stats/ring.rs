//! Records that one thread writes and any process reads, without a lock. A ring keeps the newest of
//! them; each slot has a sequence number as a page has one ([`sequence`]), and says which record it
//! holds, so that a reader notices a record that was written over. `tests/loom.rs` tries all orders
//! of this file's steps.

use super::sequence;
use crate::platform::sync::{AtomicU64, Ordering};

/// Words of a record.
pub(super) const RECORD_WORDS: usize = 6;
/// Words of a slot: sequence number, number of the record, the record.
pub(super) const SLOT_WORDS: usize = 2 + RECORD_WORDS;

/// Writes the next record, over the oldest where the ring is full. `count` is of all so far.
pub(super) fn put(count: &AtomicU64, ring: &[AtomicU64], record: &[u64; RECORD_WORDS]) {
    let number = count.load(Ordering::Relaxed);
    let slots = (ring.len() / SLOT_WORDS).max(1) as u64;
    let slot = ring.chunks_exact(SLOT_WORDS).nth((number % slots) as usize);
    let Some([sequence, held, words @ ..]) = slot else {
        return;
    };
    sequence::begin(sequence);
    held.store(number, Ordering::Relaxed);
    for (word, value) in words.iter().zip(record) {
        word.store(*value, Ordering::Relaxed);
    }
    sequence::end(sequence);
    count.store(number.wrapping_add(1), Ordering::Release);
}

/// The records of a ring of `slots` slots, oldest first, of `count` so far; and how many are not
/// among them, because they were written over. `load` gives the words of a slot, and is asked for
/// it once more for its sequence number before and after.
pub(super) fn take<E>(
    count: u64,
    slots: u64,
    mut load: impl FnMut(u64) -> Result<[u64; SLOT_WORDS], E>,
) -> Result<(Vec<[u64; RECORD_WORDS]>, u64), E> {
    const TRIES: u32 = 50; // a record is written in less than a microsecond
    let first = count.saturating_sub(slots);
    let (mut records, mut missing) = (Vec::new(), first);
    for number in first..count {
        let at = number % slots.max(1);
        let load = std::cell::RefCell::new(&mut load);
        let sequence = || Ok((load.borrow_mut())(at)?[0]);
        let (slot, torn) = sequence::consistent(TRIES, sequence, || (load.borrow_mut())(at))?;
        let [_, held, record @ ..] = slot;
        match torn || held != number {
            false => records.push(record),
            true => missing += 1,
        }
    }
    Ok((records, missing))
}
