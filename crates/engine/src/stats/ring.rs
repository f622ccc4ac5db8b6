//! Records that one thread writes and any process reads, without a lock. A ring retains the newest
//! records. Each slot has a sequence number like a page ([`sequence`]) and the number of its
//! record, so that readers notice an overwritten one. `tests/loom.rs` checks all interleavings of
//! this file.

use super::sequence;
use crate::platform::sync::{AtomicU64, Ordering};

/// Words of a record.
pub(super) const RECORD_WORDS: usize = 6;
/// Words of a slot: sequence number, number of the record, the record.
pub(super) const SLOT_WORDS: usize = 2 + RECORD_WORDS;

/// Writes the next record, over the oldest if the ring is full. `count`: records so far.
pub(super) fn put(count: &AtomicU64, ring: &[AtomicU64], record: &[u64; RECORD_WORDS]) {
    let number = count.load(Ordering::Relaxed);
    write(ring, number, record);
    count.store(number.wrapping_add(1), Ordering::Release);
}

/// Writes record `number`: a new one, or an update of a recent one.
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

/// For the writer: recent records of `count` with their numbers, newest first.
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

/// Reads a ring of `slots` slots with `count` records so far: the records, oldest first, and the
/// number of overwritten ones. `load` returns the words of a slot, and is called again to compare
/// its sequence number before and after.
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
