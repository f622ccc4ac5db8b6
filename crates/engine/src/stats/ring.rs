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
    write(ring, number, record);
    count.store(number.wrapping_add(1), Ordering::Release);
}

/// Writes record `number`: a new one, or one of the newest anew.
pub(super) fn write(ring: &[AtomicU64], number: u64, record: &[u64; RECORD_WORDS]) {
    let Some([sequence, held, words @ ..]) = slot(ring, number) else {
        return;
    };
    sequence::begin(sequence);
    held.store(number, Ordering::Relaxed);
    for (word, value) in words.iter().zip(record) {
        word.store(*value, Ordering::Relaxed);
    }
    sequence::end(sequence);
}

/// The slot of record `number`.
fn slot(ring: &[AtomicU64], number: u64) -> Option<&[AtomicU64]> {
    let slots = (ring.len() / SLOT_WORDS).max(1) as u64;
    ring.chunks_exact(SLOT_WORDS).nth((number % slots) as usize)
}

/// For who writes: the records that are there of `count`, newest first, with their numbers.
pub(super) fn newest(
    count: u64,
    ring: &[AtomicU64],
) -> impl Iterator<Item = (u64, [u64; RECORD_WORDS])> + use<'_> {
    let first = count.saturating_sub((ring.len() / SLOT_WORDS) as u64);
    (first..count).rev().filter_map(move |number| {
        let words = slot(ring, number)?.get(2..)?;
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        Some((number, std::array::from_fn(word)))
    })
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
